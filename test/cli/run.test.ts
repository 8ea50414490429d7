import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createClient, defineLimits } from "spillway";
import { afterAll, describe, expect, test } from "vitest";
import { temporaryFolder } from "../helpers/processes.js";
import { redisUrl, uniquePrefix } from "../helpers/redis.js";
import { startUpstream, startUpstreamThread } from "../helpers/upstream.js";
import { until } from "../helpers/wait.js";
import { parseResults, spillway, start } from "./command.js";

const folder = temporaryFolder();
afterAll(() => folder.remove());
const path = (name: string) => join(folder.path, name);
const write = (name: string, lines: readonly string[]) => {
  writeFileSync(path(name), lines.map((line) => `${line}\n`).join(""));
  return path(name);
};
const shared = () => ["--redis", redisUrl(), "--prefix", uniquePrefix()];

describe("spillway run", () => {
  test("sends the URLs of a file at the leak rate and writes a line per result", async () => {
    await using upstream = await startUpstreamThread();
    const urls = Array.from({ length: 25 }, (_, i) => `${upstream.url}/${i}?q=${i}`);
    const file = write("urls.txt", urls);
    const output = path("urls.jsonl");
    const ended = await spillway(["run", file, "--limit", `${upstream.host}=20/s`, "-o", output, ...shared()]);
    expect(ended).toMatchObject({ code: 0, stdout: "" });
    const results = parseResults(readFileSync(output, "utf8"));
    expect(results.map(({ id, line, url }) => ({ id, line, url }))).toEqual(
      urls.map((url, i) => ({ id: i + 1, line: i + 1, url })),
    );
    for (const result of results) {
      expect(result).toMatchObject({ status: 200, body: "ok", attempts: 1, waited: expect.any(Number) });
      expect(result.headers?.["content-length"]).toBe("2");
    }
    const recording = await upstream.read();
    expect(recording.arrivals.map(({ url }) => upstream.url + url).toSorted()).toEqual(urls.toSorted());
    expect(recording.maxInWindow(1000)).toBeLessThanOrEqual(20);
    expect(ended.stderr).toContain("25 of 25 calls have ended, 0 failed, 0 retries");
  });

  test("reads JSON Lines from stdin: methods, headers, bodies and ids; skips blank lines and comments", async () => {
    await using upstream = await startUpstream({ bodies: true });
    const { url } = upstream;
    const input = [
      `\uFEFF{"url":"${url}/a","method":"put","headers":{"x-one":"1","x-two":["2","3"]},"body":"text","id":"first"}`,
      "",
      "# a comment",
      `{"url":"${url}/b","body":{"deep":[1,"é"]},"id":7}`,
      `{"url":"${url}/c","body":[1],"headers":{"Content-Type":"application/vnd.x+json"}}\r`,
      `  ${url}/d  `,
    ].join("\n");
    const ended = await spillway(["run", "-r", "100/s", "-H", "Authorization: Bearer s", "-H", "X-One: no"], { input });
    expect(ended.code).toBe(0);
    expect(parseResults(ended.stdout).map(({ id, line }) => [id, line])).toEqual([
      ["first", 1],
      ["7", 4],
      [5, 5],
      [6, 6],
    ]);
    const [a, b, c, d] = upstream.arrivals.toSorted((one, other) => (one.url < other.url ? -1 : 1));
    expect(a).toMatchObject({ method: "PUT", body: "text", headers: { "x-one": "1", "x-two": "2, 3" } });
    expect(a?.headers["content-type"]).toBe("text/plain;charset=UTF-8");
    expect(b).toMatchObject({ method: "POST", body: '{"deep":[1,"é"]}' });
    expect(b?.headers["content-type"]).toBe("application/json");
    expect(c?.headers["content-type"]).toBe("application/vnd.x+json");
    expect(d).toMatchObject({ method: "GET", url: "/d", headers: { authorization: "Bearer s", "x-one": "no" } });
    expect(ended.stderr).toContain("embedded Valkey");
  });

  test("a line that is no call is reported with its number, fails, and does not stop the others", async () => {
    await using upstream = await startUpstream();
    const file = write("bad.txt", [
      `${upstream.url}/1`,
      "no url",
      '{"url": "x',
      `{"url":"${upstream.url}/4","boddy":"x"}`,
      `{"url":"${upstream.url}/5","method":"GET","body":"x"}`,
      `{"url":"${upstream.url}/6","headers":{"bad name":"x"}}`,
      `{"url":"${upstream.url}/7","id":"a"}`,
      `{"url":"${upstream.url}/8","id":"a"}`,
      "ftp://host/file?secret",
    ]);
    const ended = await spillway(["run", file, "-r", "100/s", ...shared()]);
    expect(ended.code).toBe(1);
    const results = parseResults(ended.stdout);
    expect(results.map(({ id, status, error }) => [id, status ?? error?.code])).toEqual([
      [1, 200],
      [2, "ERR_INVALID_LINE"],
      [3, "ERR_INVALID_LINE"],
      [4, "ERR_INVALID_LINE"],
      [5, "ERR_INVALID_CALL"],
      [6, "ERR_INVALID_LINE"],
      ["a", 200],
      [8, "ERR_DUPLICATE_ID"],
      [9, "ERR_INVALID_LINE"],
    ]);
    expect(upstream.arrivals.map(({ url }) => url)).toEqual(["/1", "/7"]);
    expect(ended.stderr).toContain(`${file}, line 2: expected an http: or https: URL, got "no url"`);
    expect(ended.stderr).toContain("line 4: no field `boddy`: the fields are url, method, headers, body, id");
    expect(ended.stderr).not.toContain("secret");
    expect(ended.stderr).toContain("9 of 9 calls have ended, 7 failed");
  });

  test("a status of 400 and above, and no answer, are failures; retries are counted", async () => {
    await using gone = await startUpstream();
    await gone.close();
    let first = true;
    await using upstream = await startUpstream({
      handler: (request, response) => {
        const flaky = request.url === "/flaky" && first;
        if (flaky) first = false;
        response.statusCode = flaky ? 503 : request.url === "/redirect" ? 302 : request.url === "/missing" ? 404 : 200;
        response.end("body");
      },
    });
    const file = write(
      "mixed.txt",
      ["missing", "redirect", "flaky"].map((name) => `${upstream.url}/${name}`),
    );
    const output = path("mixed.jsonl");
    const limits = ["-l", `${upstream.host}=100/s`, "-l", `${gone.host}=100/s`, ...shared()];
    const ended = await spillway(["run", file, "-o", output, ...limits]);
    expect(ended.code).toBe(1);
    expect(ended.stderr).toContain("3 of 3 calls have ended, 1 failed (1 × status 404), 1 retry");
    const answers = parseResults(readFileSync(output, "utf8")).map(({ status, attempts, body }) => [
      status,
      attempts,
      body,
    ]);
    expect(answers).toEqual([
      [404, 1, "body"],
      [302, 1, "body"],
      [200, 2, "body"],
    ]);
    const refused = await spillway(["run", "--retries", "0", "-o", output, ...limits], { input: `${gone.url}/x\n` });
    expect(refused.code).toBe(1);
    const [failure, ...others] = parseResults(readFileSync(output, "utf8"));
    expect(others).toEqual([]);
    expect(failure).toMatchObject({ id: 1, attempts: 1, error: { code: "ERR_UPSTREAM" } });
    expect(failure).not.toHaveProperty("status");
  });

  test("--bodies writes bodies as they came into files named by line; bytes are otherwise base64", async () => {
    const bytes = Buffer.from([0xff, 0x00, 0x80]);
    await using upstream = await startUpstream({
      handler: (_request, response) => response.setHeader("set-cookie", ["a=1", "b=2"]).end(bytes),
    });
    const bodies = path("bodies");
    const args = ["run", "-r", "100/s", ...shared()];
    const input = `\n${upstream.url}/x\n`;
    const [kept] = parseResults((await spillway([...args, "--bodies", bodies], { input })).stdout);
    expect(kept).toMatchObject({ id: 2, path: join(bodies, "2"), headers: { "set-cookie": ["a=1", "b=2"] } });
    expect(kept).not.toHaveProperty("body");
    expect(readFileSync(join(bodies, "2"))).toEqual(bytes);
    const [inline] = parseResults((await spillway(args, { input })).stdout);
    expect(inline).toMatchObject({ bodyBase64: bytes.toString("base64") });
  });

  test("a config gives limits, their header functions, redis and prefix; --limit changes its rates", async () => {
    await using upstream = await startUpstreamThread();
    const prefix = uniquePrefix();
    const file = write("config.urls", [`${upstream.url}/1`, `${upstream.url}/2`, `${upstream.url}/3`]);
    const spillwayModule = JSON.stringify(import.meta.resolve("spillway"));
    writeFileSync(
      path("spillway.config.mjs"),
      `import { defineLimits } from ${spillwayModule};
       const limits = defineLimits({ "127.0.0.1": { rate: "1/d", burst: 2, headers: () => ({ "x-token": "t" }) } });
       export default { limits, redis: ${JSON.stringify(redisUrl())}, prefix: ${JSON.stringify(prefix)} };`,
    );
    writeFileSync(path("limits.json"), JSON.stringify({ "127.0.0.1": { rate: "100/s" } }));
    const faster = ["-l", "127.0.0.1=100/s"];
    const first = await spillway(["run", file, "-c", path("spillway.config.mjs"), ...faster]);
    expect(first).toMatchObject({ code: 0 });
    expect(first.stderr).not.toContain("embedded");
    const second = await spillway(["run", file, "-c", path("limits.json"), ...shared()]);
    expect(second).toMatchObject({ code: 0 });
    const { arrivals } = await upstream.read();
    expect(arrivals.map(({ headers }) => headers["x-token"])).toEqual(["t", "t", "t", undefined, undefined, undefined]);
  });

  test("refuses what is wrong before anything is sent, with status 2 and what to do", async () => {
    await using upstream = await startUpstream();
    const file = write("refused.txt", [`${upstream.url}/1`, "https://other.example/2"]);
    writeFileSync(path("typo.json"), JSON.stringify({ "127.0.0.1": { rat: "1/s" } }));
    writeFileSync(path("limits.ts"), "export default {};");
    const cases: [string[], string, NodeJS.ProcessEnv?][] = [
      [[file], "add --limit HOST=RATE"],
      [[file, "-l", `${upstream.host}=1/s`], "other.example (first in line 2): add --limit 'other.example=RATE'"],
      [[file, "-r", "10"], '--rate 10: expected a rate such as "10/s"'],
      [[file, "-l", "x"], "Expected --limit HOST=RATE"],
      [[file, "-l", "a.b=1/s", "-l", "a.b=2/s"], "Two limits were given for a.b"],
      [[path("absent"), "-r", "1/s"], "Cannot read"],
      [[folder.path, "-r", "1/s"], "is a directory"],
      [[file, "another", "-r", "1/s"], "Expected one FILE"],
      [[file, "-r", "1/s", "-o", file], "-o would overwrite the input"],
      [[file, "-r", "1/s", "-o", join(path("absent"), "x")], "Cannot write results"],
      [[file, "-r", "1/s", "--retries", "-1"], "--retries"],
      [[file, "-r", "1/s", "--retries", "x"], "Expected --retries to be a whole number"],
      [[file, "-r", "1/s", "--timeout", "3x"], "--timeout 3x: expected a duration"],
      [[file, "-r", "1/s", "-H", "no colon"], "Expected --header"],
      [[file, "-r", "1/s", "--name", "n"], "--name needs -o FILE"],
      [[file, "-r", "1/s", "--name", "n", "-o", path("n.jsonl")], "--name needs a Redis"],
      [[file, "-r", "1/s"], "NODE_ENV is production", { NODE_ENV: "production" }],
      [[file, "-c", path("typo.json")], "did you mean `rate`?"],
      [[file, "-c", path("absent.mjs")], "Cannot load"],
      [[file, "--frobnicate"], "--frobnicate"],
    ];
    for (const [args, message, env = {}] of cases) {
      const ended = await spillway(["run", ...args], { env });
      expect({ ...ended, args }).toMatchObject({ code: 2, stdout: "", args });
      expect(ended.stderr).toContain(message);
    }
    expect(upstream.arrivals).toEqual([]);
  }, 60_000);

  const stripsTypes = Boolean(Reflect.get(process.features, "typescript"));
  test.skipIf(stripsTypes)("says so when this Node cannot load a .ts config", async () => {
    writeFileSync(path("spillway.config.ts"), "export default {};");
    const ended = await spillway(["run", "-c", path("spillway.config.ts")]);
    expect(ended).toMatchObject({ code: 2 });
    expect(ended.stderr).toContain("cannot load TypeScript; use Node 22.18 or later, or a .js file");
  });
  test.skipIf(!stripsTypes)("loads a .ts config where this Node can", async () => {
    await using upstream = await startUpstream();
    writeFileSync(path("typed.config.mts"), 'const rate: string = "100/s"; export default { "127.0.0.1": { rate } };');
    const ended = await spillway(["run", "-c", path("typed.config.mts"), ...shared()], { input: upstream.url });
    expect(ended).toMatchObject({ code: 0 });
  });

  test("a host of stdin without a limit fails alone: what was read before may be sent already", async () => {
    await using upstream = await startUpstream();
    const input = `${upstream.url}/1\nhttps://other.example/2\n${upstream.url}/3\n`;
    const ended = await spillway(["run", "-l", `${upstream.host}=100/s`, ...shared()], { input });
    expect(ended.code).toBe(1);
    expect(parseResults(ended.stdout)[1]).toMatchObject({ id: 2, error: { code: "ERR_UNKNOWN_HOST" } });
    expect(ended.stderr).toContain("stdin, line 2: no limit for other.example: add --limit 'other.example=RATE'");
    expect(upstream.arrivals).toHaveLength(2);
  });

  test("one slow host does not hold up another", async () => {
    await using slow = await startUpstream();
    await using fast = await startUpstream();
    const lines = Array.from({ length: 200 }, (_, i) => `${i % 2 === 0 ? slow.url : fast.url}/${i}`);
    await using command = start(["run", "-q", "-l", `${slow.host}=1/m`, "-l", `${fast.host}=1000/s`, ...shared()], {
      input: lines.join("\n"),
    });
    await until(() => fast.arrivals.length === 100, { timeout: 10_000 });
    expect(slow.arrivals.length).toBeLessThanOrEqual(1);
    command.kill("SIGINT");
    expect(await command.ended).toMatchObject({ code: 130 });
  });

  test("shows plain lines where stderr is no terminal, and none with -q", async () => {
    await using upstream = await startUpstream();
    const file = write(
      "plain.txt",
      Array.from({ length: 30 }, (_, i) => `${upstream.url}/${i}`),
    );
    const args = ["run", file, "-r", "15/s", "-o", path("plain.jsonl"), ...shared()];
    const [loud, quiet] = await Promise.all([spillway(args), spillway([...args.slice(0, -1), uniquePrefix(), "-q"])]);
    expect(loud.stderr).toMatch(/^spillway: \d+\/30, \d+%, \d+\.\d\/s, 0 retries, 0 failed, ETA \ds$/m);
    expect(loud.stderr).not.toContain("\x1b");
    expect(quiet.stderr).toBe("");
  });

  test("an empty input is no failure", async () => {
    const ended = await spillway(["run", write("empty.txt", []), "-r", "1/s", ...shared()]);
    expect(ended).toMatchObject({ code: 0, stdout: "" });
    expect(ended.stderr).toContain("0 of 0 calls have ended");
  });
});

describe("stopping", () => {
  test("Ctrl-C lets calls in flight end, drops the others, and exits with 130", async () => {
    await using upstream = await startUpstream({ latencyMs: 300 });
    const file = write(
      "stop.txt",
      Array.from({ length: 500 }, (_, i) => `${upstream.url}/${i}`),
    );
    const output = path("stop.jsonl");
    const prefix = uniquePrefix();
    const place = ["--redis", redisUrl(), "--prefix", prefix];
    await using command = start(["run", file, "-l", "127.0.0.1=50/s", "-o", output, ...place]);
    await until(() => upstream.arrivals.length >= 20, { timeout: 10_000 });
    command.kill("SIGINT");
    const ended = await command.ended;
    expect(ended.code).toBe(130);
    // Whatever was sent has a result, and nothing else has.
    const results = parseResults(readFileSync(output, "utf8"));
    expect(results.map(({ status }) => status)).toEqual(upstream.arrivals.map(() => 200));
    const limits = defineLimits({ "127.0.0.1": { rate: "50/s" } });
    await using client = createClient({ redis: redisUrl(), prefix, limits });
    expect(await client.limit("127.0.0.1").stats()).toMatchObject({ depth: 0, waiting: 0, active: 0 });
    expect(ended.stderr).toContain(`stopped (SIGINT): ${500 - results.length} calls were not sent`);
  });

  test("a second signal ends at once; SIGTERM exits with 143", async () => {
    await using upstream = await startUpstream({ handler: () => {} });
    await using command = start(["run", "-r", "50/s", ...shared()], { input: `${upstream.url}/hangs\n` });
    await until(() => upstream.arrivals.length === 1, { timeout: 10_000 });
    command.kill("SIGTERM");
    await until(() => command.stderr().includes("stopping"));
    command.kill("SIGTERM");
    expect(await command.ended).toMatchObject({ code: 143 });
  });

  test("a reader of stdout that goes away stops the run", async () => {
    await using upstream = await startUpstream();
    const input = Array.from({ length: 1000 }, (_, i) => `${upstream.url}/${i}`).join("\n");
    await using command = start(["run", "-r", "50/s", ...shared()], { input });
    await until(() => upstream.arrivals.length > 0, { timeout: 10_000 });
    command.child.stdout?.destroy();
    expect(await command.ended).toMatchObject({ code: 141 });
    expect(upstream.arrivals.length).toBeLessThan(1000);
  });

  test("a Redis that cannot be reached ends the run with a reason", async () => {
    const ended = await spillway(["run", "-r", "1/s", "--redis", "redis://127.0.0.1:1"], {
      input: "http://127.0.0.1:1/\n",
      timeout: 25_000,
    });
    expect(ended).toMatchObject({ code: 1 });
    expect(ended.stderr).toContain("Redis does not answer");
  }, 30_000);
});

describe("spillway", () => {
  test("prints its version and its help", async () => {
    const manifest = JSON.parse(readFileSync(join(import.meta.dirname, "../../package.json"), "utf8")) as object;
    expect(await spillway(["--version"])).toMatchObject({
      code: 0,
      stdout: `${(manifest as { version: string }).version}\n`,
    });
    expect(await spillway(["--help"])).toMatchObject({
      code: 0,
      stdout: expect.stringContaining("spillway run") as string,
    });
    const help = await spillway(["run", "--help"]);
    expect(help.code).toBe(0);
    for (const line of help.stdout.split("\n")) expect(line.length).toBeLessThanOrEqual(102);
    expect(await spillway([])).toMatchObject({ code: 2, stdout: "" });
    expect((await spillway(["walk"])).stderr).toContain("Unknown command walk");
  });
});
