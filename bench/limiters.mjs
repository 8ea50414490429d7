// @ts-check
// The classic limiters: what each lets through of the same calls, what it keeps in Redis, and what it costs. All times are
// the calls' own (`at`), so everything but the cost comes out the same in each run.
import { createLimiter } from "spillway/limiters";
import { table } from "./table.mjs";

/** @typedef {import("./run.mjs").Bench} Bench */
/** @typedef {import("spillway/limiters").LimiterOptions} LimiterOptions */

export const title = "The classic limiters, 100 calls a minute";

const LIMIT = 100;
const PER_MS = 60_000;
const START_MS = 1_800_000_000_000;

/** @type {readonly (readonly [string, LimiterOptions])[]} */
const LIMITERS = [
  ["leaky-bucket, burst 1", { algorithm: "leaky-bucket", rate: "100/m" }],
  ["leaky-bucket, burst 20", { algorithm: "leaky-bucket", rate: "100/m", burst: 20 }],
  ["token-bucket", { algorithm: "token-bucket", max: LIMIT, refillTime: PER_MS / LIMIT, refillAmount: 1 }],
  ["fixed-window", { algorithm: "fixed-window", limit: LIMIT, per: PER_MS }],
  ["sliding-log", { algorithm: "sliding-log", limit: LIMIT, per: PER_MS }],
  ["sliding-window-counter", { algorithm: "sliding-window-counter", limit: LIMIT, per: PER_MS }],
  ["sliding-window", { algorithm: "sliding-window", limit: LIMIT, per: PER_MS }],
];

/** Five calls a second, without end: what one sees is the limiter. */
const steady = () => Array.from({ length: 5 * 180 }, (_, i) => i * 200);
/** As many as the limit at the end of one minute, and again at the beginning of the next. */
const edge = () =>
  [...Array(LIMIT).keys()].flatMap((i) => [PER_MS - 1000 + i * 10, PER_MS + i * 10]).toSorted((a, b) => a - b);
/** An hour of calls at random, half as many again as the limit allows; the same in each run. */
function random() {
  const times = [];
  let seed = 7;
  for (let at = 0; at < 60 * PER_MS; times.push(Math.floor(at))) {
    seed = (seed * 48_271) % 2_147_483_647;
    at += (-Math.log(seed / 2_147_483_647) * PER_MS) / (1.5 * LIMIT);
  }
  return times;
}

/** The calls that are let through. @param {ReturnType<typeof createLimiter>} limiter @param {string} key @param {readonly number[]} arrivals */
async function admitted(limiter, key, arrivals) {
  const through = [];
  for (const at of arrivals) if ((await limiter.take(key, { at: START_MS + at })).allowed) through.push(at);
  return through;
}

/** The most in any window [t, t + period). @param {readonly number[]} times */
function mostInWindow(times) {
  let [most, first] = [0, 0];
  for (const [last, at] of times.entries()) {
    while ((times[first] ?? 0) + PER_MS <= at) first++;
    most = Math.max(most, last - first + 1);
  }
  return most;
}

/** @param {Bench} bench */
export async function measure({ redis, say }) {
  const rows = [];
  for (const [name, options] of LIMITERS) {
    say(name);
    const prefix = `bench-${name.replaceAll(/\W/g, "-")}`;
    const limiter = createLimiter(redis.url, { ...options, prefix });
    const strip = await admitted(limiter, "steady", steady());
    const atEdge = await admitted(limiter, "edge", edge());
    const arrivals = random();
    const before = await redis.usage();
    const through = await admitted(limiter, "random", arrivals);
    const after = await redis.usage();
    await limiter.close();
    rows.push({
      name,
      strip,
      average: through.length / 60,
      most: mostInWindow(through),
      atEdge: mostInWindow(atEdge),
      bytes: await bytesOf(redis, `${prefix}:limiter:{random}:*`),
      commands: (after.commands - before.commands) / arrivals.length,
    });
  }
  const head = [
    "",
    "a minute, on average",
    "most in any minute",
    "at the edge of two",
    "bytes a key",
    "commands a call",
  ];
  const lines = rows.map(({ name, average, most, atEdge, bytes, commands }) => [
    name,
    average,
    most,
    atEdge,
    bytes,
    commands,
  ]);
  return { rows, text: table(head, lines), goals: [] };
}

/** @param {import("./redis.mjs").BenchRedis} redis @param {string} pattern */
async function bytesOf({ client }, pattern) {
  const sizes = await Promise.all((await client.keys(pattern)).map((key) => client.memory("USAGE", key)));
  return sizes.reduce((/** @type {number} */ sum, size) => sum + (size ?? 0), 0);
}
