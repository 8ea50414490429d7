// @ts-check
// One run: fill, start the processes, watch what arrives at the upstream for a while.
import { setTimeout as sleep } from "node:timers/promises";
import { start } from "./processes.mjs";
import { displacement, gaps, mostInWindow, quantile } from "./series.mjs";
import { load } from "./subjects/index.mjs";

/**
 * @typedef {import("./subjects/index.mjs").Subject} Subject
 * @typedef {import("./processes.mjs").Child} Child
 * @typedef {{ redis: import("./redis.mjs").BenchRedis, upstream: Child, host: string, quick: boolean,
 *   against: Subject[], say: (line: string) => void }} Bench
 * @typedef {{ subject: Subject, rate: number, processes: number, seconds: number, warm?: number, calls?: number,
 *   blockMs?: number }} Plan
 * @typedef {{ subject: string, rate: number, processes: number, achieved: number, p50: number, p99: number, max: number,
 *   in10: number, in100: number, in1000: number, scripts: number | undefined, commands: number | undefined,
 *   redisMicros: number | undefined, workerMicros: number, average: number | undefined, most: number | undefined,
 *   strip: number[] }} Run
 */

const CHUNK = 1000;
const FIRST_MS = 8000;

/** @param {Bench} bench @param {Subject} subject @param {number} rate @param {number} calls */
export async function fill({ redis, host }, subject, rate, calls) {
  const adapter = await load(subject);
  const producer = await adapter.produce?.({ redis: redis.url, host, rate, subject });
  for (let first = 0; first < calls; first += CHUNK) await producer?.many(first, Math.min(CHUNK, calls - first));
  await producer?.close();
}

/** @param {Bench} bench @param {Plan} plan @returns {Promise<Run>} */
export async function run(bench, plan) {
  const { redis, upstream, host } = bench;
  const { subject, rate, processes, seconds, warm = 1, blockMs } = plan;
  await redis.clear();
  await upstream.ask("clear");
  // A limiter that lets too much through does not run dry either.
  if (subject.fills) await fill(bench, subject, rate, plan.calls ?? Math.ceil(rate * (2 * warm + seconds + 3)));
  const setting = { redis: redis.url, host, rate, processes, subject, ...(blockMs !== undefined && { blockMs }) };
  const children = await Promise.all(
    Array.from({ length: processes }, (_, index) => start("child.mjs", { ...setting, index })),
  );
  try {
    await Promise.all(children.map((child) => child.ask("drain")));
    await firstArrival(upstream, subject);
    await sleep(warm * 1000);
    const from = await snapshot(bench, children);
    await sleep(seconds * 1000);
    const to = await snapshot(bench, children);
    return summarise(plan, from, to, await upstream.ask("read"), redis.native);
  } finally {
    await Promise.all(children.map((child) => child.stop()));
  }
}

/** @param {Child} upstream @param {Subject} subject */
async function firstArrival(upstream, subject) {
  for (const until = Date.now() + FIRST_MS; Date.now() < until; await sleep(10)) {
    const { count } = await upstream.ask("mark");
    if (Number(count) > 0) return;
  }
  throw new Error(`${subject.name}: no call within ${FIRST_MS} ms`);
}

/** @param {Bench} bench @param {Child[]} children */
async function snapshot({ redis, upstream }, children) {
  const [usage, mark, ...cpu] = await Promise.all([
    redis.usage(),
    upstream.ask("mark"),
    ...children.map((child) => child.ask("cpu")),
  ]);
  const workers = cpu.reduce((sum, { micros }) => sum + Number(micros), 0);
  return { ...usage, at: Number(mark.at), count: Number(mark.count), workers };
}

/** @typedef {Awaited<ReturnType<typeof snapshot>>} Snapshot */

const STRIP_MS = 2000;
const BURST_GAP_MS = 300;

/**
 * @param {Plan} plan
 * @param {Snapshot} from
 * @param {Snapshot} to
 * @param {import("./processes.mjs").Message} read
 * @param {boolean} native
 * @returns {Run}
 */
function summarise({ subject, rate, processes }, from, to, read, native) {
  // Sent by upstream.mjs.
  const arrivals = /** @type {import("./upstream.mjs").Arrivals} */ (/** @type {unknown} */ (read));
  const all = Array.from(arrivals.at.subarray(0, to.count));
  const steady = all.slice(from.count);
  const calls = Math.max(1, to.count - from.count);
  const between = gaps(steady);
  const usesRedis = subject.clustered;
  const ordered = subject.fills || processes === 1;
  const { average, most } = displacement(Array.from(arrivals.order.subarray(0, to.count)));
  return {
    subject: subject.name,
    rate,
    processes,
    achieved: achievedOf(all, steady),
    p50: quantile(between, 0.5),
    p99: quantile(between, 0.99),
    max: quantile(between, 1),
    in10: mostInWindow(all, 10),
    in100: mostInWindow(all, 100),
    in1000: mostInWindow(all, 1000),
    scripts: usesRedis ? (to.scripts - from.scripts) / calls : undefined,
    commands: usesRedis ? (to.commands - from.commands) / calls : undefined,
    redisMicros: usesRedis && native ? ((to.cpuMs - from.cpuMs) * 1000) / calls : undefined,
    workerMicros: (to.workers - from.workers) / calls,
    average: ordered ? average : undefined,
    most: ordered ? most : undefined,
    // Drawn at low rates only, see charts.mjs.
    strip:
      rate > 100
        ? []
        : steady.filter((at) => at < from.at + STRIP_MS).map((at) => Math.round((at - from.at) * 10) / 10),
  };
}

/**
 * Starts a second: between the first and the last of the steady part, or, for a limiter that sends in bursts, from the
 * beginning of one burst to that of another.
 * @param {number[]} all
 * @param {number[]} steady
 */
function achievedOf(all, steady) {
  const bursts = gaps(all).flatMap((gap, i) => (gap > BURST_GAP_MS ? [i + 1] : []));
  const from = bursts[0] ?? 0;
  const to = bursts.at(-1) ?? 0;
  const [list, first, last] = to > from ? [all, from, to] : [steady, 0, steady.length - 1];
  return ((last - first) / Math.max(1, (list[last] ?? 0) - (list[first] ?? 0))) * 1000;
}
