// @ts-check
import { Redis } from "ioredis";
import { RateLimiterQueue, RateLimiterRedis } from "rate-limiter-flexible";
import { keepCalling, lanesFor, send } from "./request.mjs";

/** @param {import("./index.mjs").Setting} setting */
export async function drain({ redis, rate, host, index = 0, processes = 1 }) {
  const limiter = new RateLimiterRedis({ storeClient: new Redis(redis), points: rate, duration: 1 });
  const queue = new RateLimiterQueue(limiter);
  // It hands out a second's worth at once, so that much must be waiting.
  keepCalling({ first: index, step: processes, lanes: rate + lanesFor(rate) }, async (n) => {
    await queue.removeTokens(1);
    await send(`http://${host}/${n}`);
  });
}
