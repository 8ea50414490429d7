import { appendFileSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { temporaryFolder } from "../helpers/processes.js";
import { redisUrl, uniquePrefix } from "../helpers/redis.js";
import { startUpstream } from "../helpers/upstream.js";
import { until } from "../helpers/wait.js";
import { parseResults, spillway, start } from "./command.js";

const folder = temporaryFolder();
afterAll(() => folder.remove());

/** A named run: its input, its output, and its command line. */
function setup(lines: readonly string[], rate = "100/s") {
  const prefix = uniquePrefix();
  const file = join(folder.path, `${prefix}.txt`);
  const output = join(folder.path, `${prefix}.jsonl`);
  writeFileSync(file, lines.map((line) => `${line}\n`).join(""));
  const args = ["run", file, "-r", rate, "-o", output, "--name", "list", "--redis", redisUrl(), "--prefix", prefix];
  const results = () => parseResults(readFileSync(output, "utf8"));
  return { file, output, args, results };
}

const post = (url: string, i: number) =>
  JSON.stringify({ url: `${url}/${i}`, body: { i }, ...(i % 2 && { id: `c${i}` }) });

describe("a named run", () => {
  test("continues after kill -9 and after Ctrl-C: nothing is sent twice, every call has one result", async () => {
    await using upstream = await startUpstream({ bodies: true, latencyMs: 100 });
    const total = 200;
    const { args, output, results } = setup(Array.from({ length: total }, (_, i) => post(upstream.url, i)));

    await using first = start(args);
    await until(() => upstream.arrivals.length >= 60, { timeout: 10_000 });
    first.kill("SIGKILL");
    await first.ended;
    // As if it had been killed in the middle of writing.
    appendFileSync(output, '{"id":"c1","line":2,"url":"htt');

    await using second = start(args);
    await until(() => upstream.arrivals.length >= 120, { timeout: 10_000 });
    second.kill("SIGINT");
    const stopped = await second.ended;
    expect(stopped.code).toBe(130);
    expect(stopped.stderr).toMatch(/calls are left, \d+ of them in the queue; the same command continues/);

    const third = await spillway(args, { timeout: 30_000 });
    // What kill -9 has cut off may have been sent; it may not be repeated, and its result says so.
    const unsure = results().filter(({ error }) => error?.code === "ERR_MAYBE_SENT");
    const answered = results().filter(({ status }) => status === 200);
    expect(answered.length + unsure.length).toBe(total);
    const sent = upstream.arrivals.map(({ url }) => upstream.url + url);
    expect(new Set(sent).size).toBe(sent.length);
    expect(sent).toEqual(expect.arrayContaining(answered.map(({ url }) => url)));
    expect(unsure.length).toBeLessThan(40);
    expect(results().map(({ line }) => line)).toEqual(Array.from({ length: total }, (_, i) => i + 1));
    expect(third.code).toBe(unsure.length > 0 ? 1 : 0);

    const again = await spillway(args);
    expect(again.code).toBe(third.code);
    expect(results()).toHaveLength(total);
    expect(upstream.arrivals).toHaveLength(sent.length);
    expect(existsSync(`${output}.lock`)).toBe(false);
  }, 60_000);

  test("takes from Redis what was answered and not yet written", async () => {
    await using upstream = await startUpstream();
    const { args, output, results } = setup(Array.from({ length: 10 }, (_, i) => `${upstream.url}/${i}`));
    expect(await spillway(args)).toMatchObject({ code: 0 });
    const lines = readFileSync(output, "utf8").split("\n");
    writeFileSync(output, `${lines.slice(0, 4).join("\n")}\n`);
    const again = await spillway(args);
    expect(again).toMatchObject({ code: 0 });
    expect(again.stderr).toContain("4 calls have a result");
    expect(upstream.arrivals).toHaveLength(10);
    expect(results().map(({ line, status }) => [line, status])).toEqual(
      Array.from({ length: 10 }, (_, i) => [i + 1, 200]),
    );
  });

  test("sends what a crash cut off in the order of the input, where it may be repeated", async () => {
    let hang = true;
    await using upstream = await startUpstream({ handler: (_request, response) => void (hang || response.end("ok")) });
    const paths = Array.from({ length: 8 }, (_, i) => `/${i}`);
    // Slowly, so that two connections cannot exchange the order.
    const { args, results } = setup(
      paths.map((path) => upstream.url + path),
      "10/s",
    );
    await using first = start(args);
    await until(() => upstream.arrivals.length === paths.length, { timeout: 10_000 });
    first.kill("SIGKILL");
    await first.ended;
    hang = false;
    expect(await spillway(args, { timeout: 30_000 })).toMatchObject({ code: 0 });
    expect(upstream.arrivals.slice(paths.length).map(({ url }) => url)).toEqual(paths);
    expect(results()).toHaveLength(paths.length);
  }, 45_000);

  test("refuses to continue where it could send something twice", async () => {
    await using upstream = await startUpstream();
    const { args, file, output } = setup([`${upstream.url}/a`, `${upstream.url}/b`]);
    await using other = await startUpstream({ handler: () => {} });

    expect(await spillway(args)).toMatchObject({ code: 0 });
    appendFileSync(file, `${upstream.url}/c\n`);
    expect(await spillway(args)).toMatchObject({ code: 0 });
    expect(upstream.arrivals).toHaveLength(3);

    writeFileSync(file, `${upstream.url}/new\n${readFileSync(file, "utf8")}`);
    const moved = await spillway(args);
    expect(moved).toMatchObject({ code: 2 });
    expect(moved.stderr).toContain("line 1 is not what it was");

    writeFileSync(file, `${other.url}/hangs\n`);
    const fresh = [...args.slice(0, 5), `${output}.2`, ...args.slice(6)];
    await using running = start(fresh);
    await until(() => other.arrivals.length === 1, { timeout: 10_000 });
    const twice = await spillway(fresh);
    expect(twice).toMatchObject({ code: 2 });
    expect(twice.stderr).toContain(`Process ${running.pid} writes to`);

    const notes = `${output}.notes`;
    writeFileSync(notes, "my notes");
    const foreign = await spillway([...args.slice(0, 5), notes, ...args.slice(6)]);
    expect(foreign).toMatchObject({ code: 2 });
    expect(foreign.stderr).toContain("is no result of an earlier run");
    expect(readFileSync(notes, "utf8")).toBe("my notes");
    expect(upstream.arrivals).toHaveLength(3);
  }, 30_000);
});
