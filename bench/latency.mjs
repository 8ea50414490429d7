// @ts-check
// Idle latency: one call at a time, nothing to wait for, everything in one process.
import { start } from "./processes.mjs";
import { quantile } from "./series.mjs";
import { bottleneck, bare, spillway } from "./subjects/index.mjs";
import { table } from "./table.mjs";

const SIZES = [
  { size: 0, name: "0", count: 60 },
  { size: 10_000, name: "10 kB", count: 60 },
  { size: 1_000_000, name: "1 MB", count: 15 },
];
const RATE = 100_000;

export const title = "Idle latency: one unthrottled call, in ms";

/** @param {import("./run.mjs").Bench} bench */
export async function measure(bench) {
  const { redis, host } = bench;
  const rounds = bench.quick ? 2 : 6;
  await redis.clear();
  const subjects = [spillway, ...bench.against, bare, bottleneck];
  const children = await Promise.all(
    subjects.map((subject) => start("child.mjs", { redis: redis.url, host, rate: RATE, subject })),
  );
  try {
    const ways = [];
    for (const [i, child] of children.entries()) {
      const { names } = await child.ask("callers");
      for (const name of Array.isArray(names) ? names.map(String) : []) {
        // The bare request is the same in all of them.
        if (i > 0 && name.startsWith("bare ")) continue;
        const label = subjects[i]?.module === undefined ? name : `${name} (${subjects[i]?.name})`;
        ways.push({ child, name, label });
      }
    }
    for (const { child, name } of ways) await child.ask("call", { way: name, path: "/1/10000", count: 200 });
    const rows = [];
    for (const { size, name, count } of SIZES) {
      bench.say(`bodies of ${name}`);
      /** @type {Map<string, number[]>} */
      const times = new Map(ways.map(({ label }) => [label, []]));
      for (let round = 0; round < rounds; round++) {
        for (const { child, name: way, label } of ways) {
          const { took } = await child.ask("call", { way, path: `/1/${size}`, count });
          if (Array.isArray(took)) times.get(label)?.push(...took.map(Number));
        }
      }
      const p50 = (/** @type {string} */ label) => quantile(times.get(label) ?? [], 0.5);
      for (const { label } of ways) {
        const plain = p50(label.includes("fetch") ? "bare `fetch`" : "bare request (undici)");
        const overhead = p50(label) - plain;
        const p99 = quantile(times.get(label) ?? [], 0.99);
        rows.push({ way: label, body: name, p50: p50(label), p99, overhead, ratio: p50(label) / plain });
      }
    }
    const head = ["", "body", "p50", "p99", "over the bare one", "ratio"];
    return {
      rows,
      text: table(
        head,
        rows.map((row) => Object.values(row)),
      ),
      goals: goalsOf(rows),
    };
  } finally {
    await Promise.all(children.map((child) => child.stop()));
  }
}

/** @param {{ way: string, body: string, overhead: number, ratio: number }[]} rows */
function goalsOf(rows) {
  const find = (/** @type {string} */ way, /** @type {string} */ body) =>
    rows.find((row) => row.way.startsWith(way) && row.body === body);
  const at = (/** @type {string} */ way) => find(way, "0")?.overhead ?? Number.NaN;
  /** @type {import("./main.mjs").Goal[]} */
  return [
    { what: "overhead of `fetch` granted at once, ms", value: at("`fetch`, granted"), atMost: 0.6 },
    { what: "overhead of `fetch` through the queue, ms", value: at("`fetch`, through"), atMost: 1.5 },
    { what: "the same, bottleneck's", value: at("`fetch`, through"), atMost: at("bottleneck") },
    { what: "the same, BullMQ's", value: at("`fetch`, through"), atMost: at("bullmq") },
    { what: "1 MB durable result, of the bare transfer", value: find("`enqueue", "1 MB")?.ratio ?? 0, atMost: 2 },
  ];
}
