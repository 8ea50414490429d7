// @ts-check
import { send } from "./request.mjs";

/** @typedef {import("./index.mjs").Setting} Setting */

const CAPACITY = 1_000_000;

/** @param {Setting} setting @returns {Promise<typeof import("spillway")>} */
const library = ({ subject }) => import(subject.module ?? "spillway");

/** @param {Setting} setting */
async function options(setting) {
  const { defineLimits } = await library(setting);
  const { host, rate, redis, subject } = setting;
  const limits = defineLimits({
    [host]: {
      rate: `${rate}/s`,
      capacity: CAPACITY,
      maxResponseBytes: 4_000_000,
      lateness: subject.variant === "exact" ? 0 : "10ms",
    },
  });
  return { redis, limits };
}

/** @param {Setting} setting @returns {Promise<import("./index.mjs").Producer>} */
export async function produce(setting) {
  const { createClient } = await library(setting);
  const client = createClient(await options(setting));
  const base = `http://${setting.host}`;
  if (setting.paused === true) await client.limit(setting.host).pause("1d", "bench");
  return {
    one: (n, body) => client.enqueue(`${base}/${n}`, body === undefined ? {} : { method: "POST", body }),
    many: (first, count) =>
      client.enqueueMany(Array.from({ length: count }, (_, i) => ({ url: `${base}/${first + i}` }))),
    close: () => client.close(),
  };
}

/** @param {Setting} setting */
export async function drain(setting) {
  const { createWorker } = await library(setting);
  createWorker(await options(setting));
}

/** @param {Setting} setting */
export async function callers(setting) {
  const { createClient } = await library(setting);
  const client = createClient({ ...(await options(setting)), worker: true });
  const base = `http://${setting.host}`;
  return {
    "`run`, granted at once": (/** @type {string} */ path) => client.run(setting.host, () => send(base + path)),
    "`fetch`, granted at once": async (/** @type {string} */ path) => (await client.fetch(base + path)).text(),
    "`fetch`, through the queue": async (/** @type {string} */ path) => {
      // A durable call admitted just before, on the same connection, has the permit wait behind it.
      const first = client.enqueue(`${base}/0/0`);
      for (let i = 0; i < 20; i++) await Promise.resolve();
      const response = await client.fetch(base + path);
      await Promise.all([first, response.text()]);
    },
    "`enqueue().result()`": async (/** @type {string} */ path) => (await client.enqueue(base + path)).result(),
  };
}

/** @param {Setting} setting @param {number} count */
export async function hold(setting, count) {
  const { createClient } = await library(setting);
  const client = createClient(await options(setting));
  const limit = client.limit(setting.host);
  await limit.pause("1d", "bench");
  // All at once would keep the last of them waiting for Redis for longer than they are willing to.
  for (let done = 0; done < count; done += 500) {
    for (let i = done; i < Math.min(count, done + 500); i++) {
      client.run(setting.host, () => undefined).catch(() => {});
    }
    await limit.stats();
  }
}
