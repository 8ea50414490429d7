// @ts-check
// What `npm start` shows: three worker processes send to one upstream that refuses more than RATE calls in any second,
// while two producers offer more than that. Needs no Redis, and ends by itself.
import { writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { createClient } from "spillway";
import { startEmbeddedRedis } from "spillway/embedded";
import { drawChart } from "./chart.mjs";
import { offerAll } from "./producers.mjs";
import { answer, start, stopAll } from "./processes.mjs";
import { summarise } from "./report.mjs";
import { limitsFor, now } from "./setting.mjs";
import { openView } from "./view.mjs";

const WORKERS = ["worker 1", "worker 2", "worker 3"];
const SAMPLE_MS = 100;
const PATIENCE_SECONDS = 15;

const { values } = parseArgs({
  options: {
    /** How long calls are offered. */
    seconds: { type: "string", default: "10" },
    /** How late a start may be, in ms: more than the default of 10, as six processes share this machine. */
    lateness: { type: "string", default: "30" },
    out: { type: "string", default: "spillway-demo.svg" },
  },
});
const seconds = Math.min(60, Math.max(1, Number(values.seconds) || 10));
const lateness = Number(values.lateness);

const stop = new AbortController();
const end = (/** @type {string} */ reason, /** @type {number} */ code) => () => {
  process.exitCode = code;
  stop.abort(new Error(reason));
  // Whatever does not end now is left behind; the other processes end without this one.
  setTimeout(() => process.exit(), 5000).unref();
};
process.on("SIGINT", end("interrupted", 130));
process.on("SIGTERM", end("terminated", 143));
/** For the start, and again for the rest. */
const patience = setTimeout(end("not done in time", 1), (seconds + PATIENCE_SECONDS) * 1000).unref();

try {
  await demo();
} catch (error) {
  console.error(stop.signal.aborted ? `spillway demo: ${stop.signal.reason.message}` : error);
  process.exitCode ||= 1;
}

async function demo() {
  const redis = await startEmbeddedRedis();
  try {
    const upstream = await start("upstream.mjs");
    const host = `127.0.0.1:${upstream.message.address.port}`;
    await Promise.all(WORKERS.map((name) => start("worker.mjs", redis.url, host, values.lateness, name)));
    const client = createClient({ redis: redis.url, limits: limitsFor(host, lateness, "") });
    try {
      await show(await run(client, host, upstream.child));
    } finally {
      await client.close();
    }
  } finally {
    // Before the server that the workers are connected to.
    await stopAll();
    await redis.close();
  }
}

/**
 * @param {import("spillway").Client} client
 * @param {string} host
 * @param {import("node:child_process").ChildProcess} upstream
 */
async function run(client, host, upstream) {
  /** @type {import("./report.mjs").Recording} */
  const recording = { startedAt: now(), offers: [], depths: [], arrivals: [], blind: 0 };
  const view = openView(seconds);
  patience.refresh();
  const offering = offerAll(client, { host, seconds, offers: recording.offers, signal: stop.signal });
  let done = false;
  void offering.finally(() => (done = true));
  do {
    await sleep(SAMPLE_MS);
    const { depth } = await client.limit(host).stats();
    recording.depths.push({ at: now(), depth });
    upstream.send("read");
    const { arrivals, blind } = await answer(upstream);
    recording.arrivals.push(...arrivals);
    recording.blind = blind;
    view.draw(recording);
  } while (!done);
  view.end();
  await offering;
  stop.signal.throwIfAborted();
  return recording;
}

async function show(/** @type {import("./report.mjs").Recording} */ recording) {
  const { text, flaws } = summarise(recording, lateness);
  writeFileSync(values.out, drawChart(recording));
  console.log(`${text}\n\nThe picture: ${values.out}`);
  for (const flaw of flaws) console.error(`Not as promised: ${flaw}`);
  if (flaws.length > 0) process.exitCode = 1;
}
