import { execFile } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { adopt } from "../helpers/processes.js";
import { countStarts, elements, isWellFormed } from "./svg.js";

const root = join(import.meta.dirname, "../..");
const folder = mkdtempSync(join(tmpdir(), "spillway-examples-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

interface Run {
  readonly code: number | string | null | undefined;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs a script as its reader would, without any setting; it is killed when it takes too long. */
function run(script: string, args: readonly string[] = [], timeout = 18_000): Promise<Run> {
  const { REDIS_URL: _url, NODE_ENV: _env, ...env } = process.env;
  return new Promise((resolve) => {
    const options = { cwd: folder, env, timeout, killSignal: "SIGKILL" as const };
    const child = execFile(process.execPath, [join(root, script), ...args], options, (error, stdout, stderr) => {
      resolve({ code: error === null ? 0 : error.code, stdout, stderr });
    });
    adopt(child);
  });
}

const lines = (text: string): string[] => text.trimEnd().split("\n");

/** The times that the local API tells, in the order of the lines. */
const times = (text: string): number[] => [...text.matchAll(/after (\d+) ms/g)].map(([, ms]) => Number(ms));

/**
 * That calls were held back. How exactly, and that they keep their order, is tested elsewhere: the API runs in the process
 * of the example, so that on a busy machine its clock is not to be trusted.
 */
function expectSpaced(at: readonly number[], spacing: number): void {
  expect(Math.max(...at) - Math.min(...at)).toBeGreaterThan(((at.length - 1) * spacing) / 2);
}

/** The lines without their times, in an order of their own: where a start was late, another call may overtake it. */
const calls = (printed: readonly string[]): string[] => printed.map((line) => line.split(" after ")[0] ?? "").sort();

describe("each example runs by itself, without Redis and network", () => {
  test("wrap-fetch", async () => {
    const { code, stdout, stderr } = await run("examples/wrap-fetch.mjs");
    expect(stderr).toContain("embedded Valkey");
    const printed = lines(stdout);
    const codes = (printed.pop() ?? "").split(" ");
    expect(codes).toHaveLength(10);
    expect(codes.filter((one) => one !== "ok" && one !== "ERR_QUEUE_FULL")).toEqual([]);
    expect(codes.filter((one) => one === "ok").length).toBeGreaterThanOrEqual(6);
    expect(codes).toContain("ERR_QUEUE_FULL");
    expect(calls(printed)).toEqual(codes.flatMap((one, i) => (one === "ok" ? [`GET /items/${i}`] : [])));
    expectSpaced(times(stdout), 100);
    expect(code).toBe(0);
  });

  test("enqueue", async () => {
    const { code, stdout } = await run("examples/enqueue.mjs");
    expect(lines(stdout)).toEqual([
      expect.stringMatching(/^accepted, expected in a (moment|while)$/),
      '200 POST /hooks after 0 ms, with "Bearer secret": {"event":"paid"}',
    ]);
    expect(code).toBe(0);
  });

  test("worker", async () => {
    const { code, stdout } = await run("examples/worker.mjs");
    expect(calls(lines(stdout))).toEqual([1, 2, 3, 4].map((n) => `sent by the worker: GET /${n}`));
    expectSpaced(times(stdout), 200);
    expect(code).toBe(0);
  });

  test("per-host", async () => {
    const { code, stdout } = await run("examples/per-host.mjs");
    const printed = lines(stdout);
    const paths = ["/0", "/1", "/2", "/3", "/tenants/a", "/tenants/b", "/tenants/a"];
    expect(calls(printed)).toEqual(paths.map((path) => `GET ${path}`).sort());
    const [first = 0, second = 0, third = 0, fourth = 0, a = 0, b = 0, again = 0] = times(stdout);
    expectSpaced([first, second], 200);
    expectSpaced([third, fourth], 200);
    expectSpaced([a, again], 1000);
    // With one bucket for both tenants, the second would have waited for a second, too.
    expect(b).toBeLessThan(Math.max(a, again));
    expect(code).toBe(0);
  });

  test("sdk", async () => {
    const { code, stdout } = await run("examples/sdk.mjs");
    expect([...stdout.matchAll(/GET (\S+) after/g)].map(([, path]) => path)).toEqual([
      "/users/ada",
      "/users/grace",
      "/users/barbara",
    ]);
    expectSpaced(times(stdout), 200);
    expect(lines(stdout).at(-1)).toBe("any async function waits its turn");
    expect(code).toBe(0);
  });

  test("limit-changes", async () => {
    const { code, stdout } = await run("examples/limit-changes.mjs");
    expect(lines(stdout)).toEqual([
      "first",
      "second, without waiting for a minute",
      "20 in 1000 ms, paused: the provider asked for it",
      "third, after the pause",
      "ERR_BLOCKED: the account was closed",
    ]);
    expect(code).toBe(0);
  });

  test("limiters", async () => {
    const { code, stdout } = await run("examples/limiters.mjs");
    expect(lines(stdout)).toEqual([
      "login 1: ok, 2 left",
      "login 2: ok, 1 left",
      "login 3: ok, 0 left",
      "login 4: refused, again in 60 min",
      "crawler: ignores robots.txt",
      "2026-01-01T12:00:00.000Z true",
      "2026-01-01T12:00:00.400Z true",
      "2026-01-01T12:00:00.800Z false",
      "2026-01-01T12:00:01.100Z true",
    ]);
    expect(code).toBe(0);
  });

  test("simulate", async () => {
    const picture = join(folder, "simulated.svg");
    const { code, stdout } = await run("examples/simulate.mjs", [picture]);
    expect(lines(stdout)).toEqual([
      "1/s: 1914 of 1914 sent, half of them within 72.72 s, all within 200.99 s",
      "1/s, 100 may wait: 1320 of 1914 sent, half of them within 12.12 s, all within 101 s",
      "5/s, 2000/h: 1914 of 1914 sent, half of them within 9.292 s, all within 40.198 s",
    ]);
    const svg = readFileSync(picture, "utf8");
    expect(isWellFormed(svg)).toBe(true);
    expect(svg).toContain("1/s, 100 may wait: 1914 calls offered, 1320 sent, 594 refused, at most 100 waiting.");
    expect(code).toBe(0);
  });

  test("there is a test for each", () => {
    const examples = readdirSync(join(root, "examples")).filter((name) => name.endsWith(".mjs"));
    expect(examples.filter((name) => name !== "local-api.mjs").map((name) => name.replace(".mjs", ""))).toEqual([
      "enqueue",
      "limit-changes",
      "limiters",
      "per-host",
      "sdk",
      "simulate",
      "worker",
      "wrap-fetch",
    ]);
    for (const name of examples) {
      const text = readFileSync(join(root, "examples", name), "utf8");
      expect(text).toMatch(/^\/\/ @ts-check\n/);
      expect(lines(text).length).toBeLessThanOrEqual(name === "local-api.mjs" ? 40 : 25);
    }
  });
});

describe("the demo", () => {
  test("sends all that it accepted, within the upstream's limit, and draws it", async () => {
    const picture = join(folder, "demo.svg");
    // The upstream's clock is as good as the machine is idle, which is not what this test is about.
    const { code, stdout, stderr } = await run(
      "examples/demo/main.mjs",
      ["--seconds", "4", "--lateness", "150", "--out", picture],
      45_000,
    );
    expect(stderr).toBe("");
    expect(code).toBe(0);

    const summary = new Map(
      [...stdout.matchAll(/^([a-z][a-z ]*?) {2,}([\d.]+)/gm)].map(([, name, n]) => [name, Number(n)]),
    );
    const value = (name: string): number => summary.get(name) ?? Number.NaN;
    expect(value("offered")).toBe(value("accepted") + value("dropped"));
    expect(value("sent")).toBe(value("accepted"));
    expect(value("dropped")).toBeGreaterThan(0);
    expect(value("refused by the upstream")).toBe(0);
    expect(value("most in any one second")).toBeLessThanOrEqual(50);
    expect(value("leak rate")).toBeLessThanOrEqual(50);
    expect(value("leak rate")).toBeGreaterThan(0);

    const svg = readFileSync(picture, "utf8");
    expect(isWellFormed(svg)).toBe(true);
    expect(elements(svg, "title")).toBe(1);
    expect(svg).toContain(`${value("offered")} calls were offered, ${value("dropped")} of them dropped`);
    // Each start has a stroke in its sender's lane and one in the lane of all.
    expect(countStarts(svg)).toBe(2 * value("sent"));
    expect(svg).not.toMatch(/NaN|undefined|Infinity/);
  }, 50_000);

  test("the picture in the README is one that it drew", () => {
    const svg = readFileSync(join(root, "docs/demo.svg"), "utf8");
    expect(isWellFormed(svg)).toBe(true);
    expect(countStarts(svg)).toBeGreaterThan(200);
  });
});
