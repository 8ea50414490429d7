// @ts-check
import Bottleneck from "bottleneck";
import { Redis } from "ioredis";
import { keepCalling, lanesFor, send } from "./request.mjs";

/** @typedef {import("./index.mjs").Setting} Setting */

/** @param {Setting} setting */
async function open({ redis, rate }) {
  const connection = new Bottleneck.IORedisConnection({ client: new Redis(redis) });
  const limiter = new Bottleneck({ id: "bench", connection, minTime: 1000 / rate });
  limiter.on("error", () => {});
  await limiter.ready();
  return limiter;
}

/** @param {Setting} setting */
export async function drain(setting) {
  const { index = 0, processes = 1, rate, host } = setting;
  const limiter = await open(setting);
  keepCalling({ first: index, step: processes, lanes: lanesFor(rate) }, (n) =>
    limiter.schedule(() => send(`http://${host}/${n}`)),
  );
}

/** @param {Setting} setting */
export async function callers(setting) {
  const limiter = await open(setting);
  return {
    "bottleneck, `schedule`": (/** @type {string} */ path) =>
      limiter.schedule(() => send(`http://${setting.host}${path}`)),
  };
}

/** @param {Setting} setting @param {number} count */
export async function hold(setting, count) {
  const limiter = await open({ ...setting, rate: 1 / 3600 });
  for (let done = 0; done < count; done += 500) {
    for (let i = done; i < Math.min(count, done + 500); i++) limiter.schedule(async () => {}).catch(() => {});
    await limiter.currentReservoir();
  }
}
