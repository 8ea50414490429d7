// @ts-check
// Memory: what waiting calls take, in Redis and in the process that waits.
import { start } from "./processes.mjs";
import { bare, bottleneck, load, pQueue, pThrottle, spillway } from "./subjects/index.mjs";
import { table } from "./table.mjs";

/** @typedef {import("./run.mjs").Bench} Bench */
/** @typedef {import("./subjects/index.mjs").Subject} Subject */

const STORED = 10_000;
const HELD = 100_000;
const BODY = "x".repeat(1000);

export const title = "Memory of waiting calls";

/** @param {Bench} bench */
export async function measure(bench) {
  const held = bench.quick ? HELD / 10 : HELD;
  /** @type {{ what: string, redis: number | undefined, rss: number | undefined }[]} */
  const rows = [];
  for (const subject of [spillway, ...bench.against, bare]) {
    bench.say(`${subject.name}, ${STORED} requests`);
    rows.push({
      what: `${subject.name}: request with a 1 kB body`,
      redis: await stored(bench, subject),
      rss: undefined,
    });
  }
  for (const subject of [spillway, ...bench.against, bottleneck, pThrottle, pQueue]) {
    bench.say(`${subject.name}, ${held} calls that wait`);
    const { redis, rss } = await holding(bench, subject, held).catch((error) => {
      console.error(`${subject.name} cannot hold ${held} calls here:`, error);
      return { redis: undefined, rss: undefined };
    });
    rows.push({ what: `${subject.name}: waiting function`, redis: subject.clustered ? redis : undefined, rss });
  }
  const request = (/** @type {Subject} */ { name }) =>
    rows.find(({ what }) => what.startsWith(`${name}: request`))?.redis;
  const waiting = (/** @type {Subject} */ { name }) =>
    rows.find(({ what }) => what === `${name}: waiting function`)?.rss;
  const lines = rows.map(({ what, redis, rss }) => [
    what,
    redis,
    redis === undefined || rss !== undefined ? undefined : redis / (request(bare) ?? Number.NaN),
    rss,
    rss === undefined ? undefined : rss / (waiting(bottleneck) ?? Number.NaN),
  ]);
  const head = ["", "Redis, bytes a call", "of bullmq", `RSS, MB for ${held}`, "of bottleneck"];
  return { rows, text: table(head, lines), goals: [] };
}

/** Bytes in Redis for each stored request. @param {Bench} bench @param {Subject} subject */
async function stored({ redis, host }, subject) {
  await redis.clear();
  const before = await redis.memory();
  const adapter = await load(subject);
  const producer = await adapter.produce?.({ redis: redis.url, host, rate: 1, paused: true, subject });
  for (let first = 0; first < STORED; first += 100) {
    await Promise.all(Array.from({ length: 100 }, async (_, i) => producer?.one(first + i, BODY)));
  }
  await producer?.close();
  return Math.round(((await redis.memory()) - before) / STORED);
}

/** @param {Bench} bench @param {Subject} subject @param {number} count */
async function holding({ redis, host }, subject, count) {
  await redis.clear();
  const before = await redis.memory();
  const child = await start("child.mjs", { redis: redis.url, host, rate: 1, subject });
  try {
    const empty = Number((await child.ask("rss")).bytes);
    await child.ask("hold", { count });
    const full = Number((await child.ask("rss")).bytes);
    return { redis: Math.round(((await redis.memory()) - before) / count), rss: (full - empty) / 1e6 };
  } finally {
    await child.stop();
  }
}
