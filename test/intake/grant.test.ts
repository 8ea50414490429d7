/** Grants on their way: none is lost, whatever else this process does meanwhile. */
import { Redis } from "ioredis";
import { expect, onTestFinished, test } from "vitest";
import { defineLimits } from "spillway";
import { openContext } from "../../dist/redis/context.js";
import { acquire } from "../../dist/intake/permit.js";
import { blockEventLoop } from "../helpers/load.js";
import { redisUrl, uniquePrefix } from "../helpers/redis.js";
import { bounded, until } from "../helpers/wait.js";
import { name, openDesk } from "./desk.js";

/** Whatever arrives meanwhile is dealt with at once, in one go. */
function hiccups(ms: number): Disposable {
  const timer = setInterval(() => blockEventLoop(ms), 1);
  return { [Symbol.dispose]: () => clearInterval(timer) };
}

test("a grant that arrives together with the reply to its admission is not lost", async () => {
  for (let round = 0; round < 12; round++) {
    const limit = name();
    await using desk = openDesk({ [limit]: { rate: "200/s", lateness: 0 } });
    if (round % 2 === 1) await desk.client.run(limit, () => {});
    const from = performance.now();
    const calls = Array.from({ length: 20 }, () => desk.client.run(limit, () => {}));
    {
      using _ = hiccups(10);
      await new Promise((resolve) => setTimeout(resolve, 60));
    }
    await Promise.all(calls);
    // A lost one is noticed after five seconds.
    expect(performance.now() - from).toBeLessThan(3000);
  }
});

test("a permit that Redis no longer knows waits for the grant that is on its way", async () => {
  const limit = name();
  const limits = defineLimits({ [limit]: { rate: "1/m" } });
  const prefix = uniquePrefix();
  const ref = limits.resolve(limit);
  const context = openContext({ redis: redisUrl(), prefix, limits });
  const redis = new Redis(redisUrl());
  const closing = new AbortController();
  const terms = { priority: "normal", cost: 1, maxWaitMs: undefined } as const;
  onTestFinished(async () => {
    closing.abort();
    redis.disconnect();
    await context.close();
  });
  (await acquire(context, ref, { terms, closing: closing.signal })).release();
  const pending = acquire(context, ref, { terms, closing: closing.signal });
  pending.catch(() => {});
  const wait = `${prefix}:{${ref.bucket}}:wait`;
  const id = await until(() => redis.lindex(wait, -1));
  // Its reply comes after that to the admission, which is then dealt with.
  await context.session.run(ref, "stats", [""]);
  await new Promise((resolve) => setImmediate(resolve));

  // What a worker does: it takes the permit, and posts the grant a moment later. In between leases are renewed.
  await redis.multi().lrem(wait, 1, id).del(`${prefix}:{${ref.bucket}}:${id}`).exec();
  context.keeper.renewAll();
  await context.session.run(ref, "stats", [""]);
  const slot = [Math.ceil(context.session.clock.now()), 0, 0];
  await redis.rpush(context.session.address, `${JSON.stringify({ type: "grant", id, slot, counted: false })}\n`);
  await bounded(pending, 3000, "the permit");
  expect(await redis.llen(wait)).toBe(0);
});
