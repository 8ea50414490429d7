import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Arrival, type SimulatedCall, type Simulation } from "spillway";
import { afterAll, describe, expect, test } from "vitest";
import { UsageError } from "../../dist/cli/arguments.js";
import { openArrivals, readArrivals } from "../../dist/cli/arrivals.js";
import { readPolicies } from "../../dist/cli/policies.js";
import { parseSimulateArguments } from "../../dist/cli/simulate-arguments.js";
import { elements, isWellFormed } from "../examples/svg.js";
import { temporaryFolder } from "../helpers/processes.js";
import { redisUrl, uniquePrefix } from "../helpers/redis.js";
import { bounded, until } from "../helpers/wait.js";
import { spillway, start } from "./command.js";

const folder = temporaryFolder();
afterAll(() => folder.remove());
const path = (name: string) => join(folder.path, name);
const write = (name: string, text: string) => {
  writeFileSync(path(name), text);
  return path(name);
};
const shared = () => ["--redis", redisUrl(), "--prefix", uniquePrefix()];

interface Printed {
  readonly policies: readonly (Pick<Simulation, "total" | "limits" | "span"> & { readonly policy: string })[];
}
const parse = (stdout: string) => (JSON.parse(stdout) as Printed).policies;
const six = write("six.csv", `at\n${"0\n".repeat(6)}`);

describe("spillway simulate", () => {
  test("prints what would have been sent and refused", async () => {
    const ended = await spillway(["simulate", six, "-l", "api=2/s capacity=3"]);
    expect(ended).toEqual({
      code: 0,
      signal: null,
      stderr: "",
      stdout: `                              simulated

api
  offered                             6
  sent                                4
  ERR_QUEUE_FULL                      2
  wait, median                    505ms
  wait, 95 %                      1.51s
  wait, 99 %                      1.51s
  wait, longest                   1.51s
  most waiting                        3
  most in 1s                     2 of 2

last start or refusal after       1.51s
`,
    });
  });

  test("puts policies side by side, and draws them", async () => {
    const svg = path("policies.svg");
    const config = write("other.mjs", 'export default { api: { rate: "1/m", capacity: 2 } };');
    const compared = ["--compare", "faster: 10/s", "--compare", "burst=2 overflow=drop-oldest", "--compare", config];
    const ended = await spillway(["simulate", "-l", "api=2/s capacity=3", ...compared, "--svg", svg, ...shared()], {
      input: readFileSync(six, "utf8"),
    });
    expect(ended.stderr).toBe("");
    const rows = ended.stdout.split("\n").map((line) => line.trim().split(/ {2,}/));
    expect(rows.filter(([label = ""]) => /^(offered|sent|ERR_|wait, longest|most)/.test(label))).toEqual([
      ["offered", "6", "6", "6", "6"],
      ["sent", "4", "4", "5", "3"],
      ["ERR_QUEUE_FULL", "2", "2", "1", "3"],
      ["wait, longest", "1.51s", "303ms", "1.51s", "2m01s"],
      ["most waiting", "3", "3", "3", "2"],
      ["most in the period of the rate", "2 of 2", "4 of 10", "3 of 2", "1 of 1"],
    ]);
    expect(rows[0]).toEqual(["base", "faster", "burst=2 overflow=drop-oldest", config]);
    const picture = readFileSync(svg, "utf8");
    expect(isWellFormed(picture)).toBe(true);
    expect(picture).not.toMatch(/NaN|undefined|Infinity/);
    expect(picture).toContain("base: 6 calls offered, 4 sent, 2 refused, at most 3 waiting.");
    // Offered, sent and waiting of each of four policies.
    expect(picture.match(/class="panel"/g)).toHaveLength(12);
    expect(elements(picture, 'text class="title"')).toBe(5);
    expect(picture.match(/<path class="rate"/g)).toHaveLength(4);
  });

  test("writes a line for each call, and JSON", async () => {
    const output = path("calls.jsonl");
    const lines = [
      { at: "2026-01-01T00:00:00Z", url: "https://api.example.com/1", status: 200 },
      { at: "2026-01-01T00:00:00Z", url: "https://api.example.com/2", headers: { "x-tenant": "7" }, maxWait: "100ms" },
      { at: "2026-01-01T00:00:00Z", url: "https://api.example.com/3", headers: { "x-tenant": "7" }, cost: 2 },
      { at: "2026-01-01T00:00:02.5Z", url: "https://other.example.com/", priority: "high", duration: 5 },
    ];
    const file = write("calls.log", `\n${lines.map((line) => JSON.stringify(line)).join("\n\n")}`);
    const config = write(
      "tenants.mjs",
      `export default { limits: { "api.example.com": {
        rate: "1/s", lateness: 0, key: ({ headers }) => headers.get("x-tenant") ?? "none",
      } }, redis: "redis://127.0.0.1:1", prefix: "not used" };`,
    );
    const ended = await spillway(["simulate", file, "-c", config, "--json", "-o", output, ...shared()]);
    expect(ended).toMatchObject({ code: 0, stderr: "" });
    expect(parse(ended.stdout)).toMatchObject([
      {
        policy: "simulated",
        total: { offered: 4, sent: 3, refused: { ERR_UNKNOWN_HOST: 1 } },
        limits: { "api.example.com": { offered: 3, sent: 3, buckets: 2 } },
        span: 2500,
      },
    ]);
    const calls = readFileSync(output, "utf8").trimEnd().split("\n");
    const parsed = calls.map((line) => JSON.parse(line) as SimulatedCall & { policy: string });
    const time = Date.UTC(2026, 0);
    expect(parsed.toSorted((a, b) => a.index - b.index)).toEqual([
      called(0, "none", time),
      called(1, "7", time),
      called(2, "7", time + 1000),
      { policy: "simulated", index: 3, at: time + 2500, outcome: "ERR_UNKNOWN_HOST", waited: 0 },
    ]);
    function called(index: number, key: string, startedAt: number) {
      const limit = "api.example.com";
      const call = { index, at: time, limit, bucket: `${limit}|${key}`, outcome: "sent" };
      return { policy: "simulated", ...call, startedAt, waited: startedAt - time };
    }
  });

  test("takes seconds, and sorts", async () => {
    const file = write("log.csv", "at,limit\n1767225601.5,a\n1767225600,a\n1767225600.25,b\n");
    const limits = ["-l", "a=1/s lateness=0", "-l", "b=1/s lateness=0", "--compare", "1/m"];
    const ended = await spillway(["simulate", file, ...limits, "--seconds", "--sort", "--json", ...shared()]);
    expect(parse(ended.stdout).map(({ span, total }) => [span, total.sent])).toEqual([
      [1500, 3],
      [60_000, 3],
    ]);
  });

  test("sorts times in every way of writing them", async () => {
    const texts = ["2026-01-01T00:00:03+0000", "2026-01-01 00:00:02,5", "2026-01-01t00:00:01z", "2026-01-01"];
    const file = write("written.csv", `at\n${texts.map((text) => `"${text}"`).join("\n")}\n1767225600250\n`);
    const ended = await spillway(["simulate", file, "-l", "api=10/s", "--sort", "--json", ...shared()]);
    expect(ended.stderr).toBe("");
    expect(parse(ended.stdout)[0]).toMatchObject({ span: 3000, total: { sent: 5 } });
  });

  test("--limit changes a limit of the config, and keeps what else it says", async () => {
    const config = write("changed.json", '{ "api": { "rate": "1/s", "capacity": 2, "lateness": 0 } }');
    const ended = await spillway(["simulate", six, "-c", config, "-l", "api=4/s", "--json", ...shared()]);
    expect(parse(ended.stdout)[0]).toMatchObject({ total: { sent: 3 }, span: 500 });
  });
});

test("Ctrl-C ends it, whatever it waits for", async () => {
  const output = path("interrupted.jsonl");
  await using command = start(["simulate", "-l", "api=1/s", "-o", output, ...shared()], { open: true });
  command.child.stdin?.write("at\n5\n");
  // It listens to signals before it opens that.
  await until(() => existsSync(output));
  command.kill("SIGINT");
  const ended = await bounded(command.ended, 10_000, "the end of an interrupted simulation");
  expect(ended).toMatchObject({ code: 130, stdout: "" });
});

describe("wrong usage is told, with exit status 2", () => {
  const limit = ["-l", "api=1/s"];
  const mixed = write("mixed.csv", "at\n5\n4\n");
  const cases: readonly [string, readonly string[], string][] = [
    ["no limit", [six], "No limit was given"],
    ["two files", [six, six, ...limit], "Expected one FILE, got 2"],
    ["an unknown option", [six, "--limits", "x"], "Unknown option '--limits'"],
    ["no file", [path("none.csv"), ...limit], "Cannot read"],
    ["a folder", [folder.path, ...limit], "it is a directory"],
    ["a limit without rate", [six, "-l", "api"], "Expected --limit 'HOST=RATE'"],
    ["a limit with a wrong rate", [six, "-l", "api=fast"], "--limit 'api=fast': expected rate to be a rate such as"],
    ["a wrong option of a limit", [six, "-l", "api=1/s burst=0"], "expected burst to be an integer from 1"],
    ["an unknown option of a limit", [six, "-l", "api=1/s bursts=2"], "expected one of rate, burst, rules, capacity"],
    ["a wrong policy", [six, ...limit, "--compare", "capacity=none"], "expected capacity to be a positive integer"],
    ["a wrong rule", [six, ...limit, "--compare", "rules=5/m,6"], "--compare 'rules=5/m,6': expected rules"],
    ["a policy twice", [six, ...limit, "--compare", "2/s", "--compare", "2/s"], "Two policies are called 2/s"],
    ["calls on stdout", [six, ...limit, "-o", "-"], "the table goes to stdout"],
    ["a prefix with braces", [six, ...limit, "--prefix", "{a}"], "without braces"],
  ];
  test.each(cases)("%s", async (_name, args, message) => {
    const prepare = async (): Promise<void> => {
      const given = parseSimulateArguments(args);
      if (given === undefined) return;
      await readPolicies(given);
      await openArrivals(given, 1);
    };
    await expect(prepare()).rejects.toThrow(UsageError);
    await expect(prepare()).rejects.toThrow(message);
  });

  test("times out of order, and what to do", async () => {
    const ended = await spillway(["simulate", mixed, ...limit]);
    expect(ended).toMatchObject({ code: 2, stdout: "" });
    expect(ended.stderr).toContain(`${mixed}: Arrival 2: Expected arrivals in the order of their times`);
    expect(ended.stderr).toContain("(--sort puts them in order)");
    expect((await spillway(["simulate", mixed, ...limit, "--sort"])).code).toBe(0);
  });
});

test("--help tells every option", async () => {
  const { code, stdout } = await spillway(["simulate", "--help"]);
  expect(code).toBe(0);
  const options = ["limit", "rate", "config", "compare", "output", "svg", "json", "seconds", "sort", "redis", "prefix"];
  for (const option of options) expect(stdout).toMatch(new RegExp(`^  (-\\w, |    )--${option}\\b`, "m"));
  expect((await spillway(["--help"])).stdout).toContain("spillway simulate");
});

describe("arrivals in a file", () => {
  const read = async (text: string, seconds = false, size = 7) => {
    const bytes = Buffer.from(text);
    const chunks = Array.from({ length: Math.ceil(bytes.length / size) }, (_, i) =>
      bytes.subarray(i * size, (i + 1) * size),
    );
    const found: Arrival[] = [];
    const source = (async function* () {
      yield* chunks;
    })();
    for await (const arrival of readArrivals(source, { file: "calls", seconds })) found.push(arrival);
    return found;
  };

  test("are CSV, quoted or not, with whatever columns", async () => {
    const text =
      '\uFEFFat, url ,status,priority,cost,duration,maxWait\r\n5,"https://a.example.com/?q=1,2",200,high,3,20,\r\n\r\n2026-01-01,,,,,1s,250ms\r\n';
    const expected = [
      { at: 5, url: "https://a.example.com/?q=1,2", priority: "high", cost: 3, duration: 20 },
      { at: Date.UTC(2026, 0), duration: "1s", maxWait: "250ms" },
    ];
    expect(await read(text)).toEqual(expected);
    expect(await read(text, false, 1000)).toEqual(expected);
  });

  test("are JSON Lines", async () => {
    const text =
      '\n{"at":5,"url":"https://a.example.com/","headers":{"a":"b"},"body":"7","status":200}\n\n{"at":"6","key":7}';
    const expected = [
      { at: 5, url: "https://a.example.com/", headers: { a: "b" }, body: "7" },
      { at: 6, key: "7" },
    ];
    expect(await read(text)).toEqual(expected);
  });

  test("may have their times in seconds, which are not taken for milliseconds", async () => {
    expect(await read("at\n1767225600.25\n1767225601\n", true)).toEqual([{ at: 1767225600250 }, { at: 1767225601000 }]);
    await expect(read("at\n1767225600.25\n")).rejects.toThrow(
      "calls, line 2: the time 1767225600.25 looks like seconds",
    );
    expect(await read("at\n1767225600250\n")).toEqual([{ at: 1767225600250 }]);
  });

  test("may be none", async () => {
    expect(await read("")).toEqual([]);
    expect(await read("at\n")).toEqual([]);
  });

  test.each([
    ["at,url\n5,https://a.example.com/,x\n", "calls: Invalid Record Length"],
    ['at,url\n5,"https\n', "calls: Quote Not Closed"],
    ['at;url\n5;https"\n', "calls: Invalid Opening Quote"],
    ["time\n5\n", "calls, line 2: expected a time under the name `at`"],
    ["at\n5\nsoon\n", "calls, line 3: Expected `at` to be milliseconds"],
    ['{"at":5}\n{"at":\n', "calls, line 2: expected a JSON object"],
    ['{"at":5}\n[5]\n', "calls, line 2: expected a JSON object"],
    ['[\n  {"at":5}\n]\n', "calls, line 1: expected a JSON object"],
    ['{"at":5}\n{"at":6,"url":{}}\n', "calls, line 2: expected url to be a text or a number"],
  ])("%j is none", async (text, message) => {
    await expect(read(text)).rejects.toThrow(message);
    await expect(read(text)).rejects.toThrow(UsageError);
  });
});
