/** Grants on their way: none is lost, whatever else this process does meanwhile. */
import { expect, test } from "vitest";
import { defineLimits } from "spillway";
import { openContext } from "../../dist/redis/context.js";
import { acquire } from "../../dist/intake/permit.js";
import { startWorker } from "../../dist/send/worker.js";
import { blockEventLoop } from "../helpers/load.js";
import { redisUrl, uniquePrefix } from "../helpers/redis.js";
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

test("a grant that is on its way while leases are renewed is not lost", async () => {
  const limit = name();
  const limits = defineLimits({ [limit]: { rate: "500/s", lateness: 0 } });
  // As a client has it, but with leases that are renewed every 20 ms.
  const context = openContext({ redis: redisUrl(), prefix: uniquePrefix(), limits }, 60);
  const worker = startWorker(context, {}, () => context.close());
  const closing = new AbortController().signal;
  const order: number[] = [];
  const calls = Array.from({ length: 500 }, async (_, i) => {
    const permit = await acquire(context, limits.resolve(limit), { closing });
    order.push(i);
    permit.release();
  });
  {
    using _ = hiccups(3);
    await Promise.all(calls);
  }
  await worker.close();
  // What is lost goes back to the end of the queue; a timer that is late for a hiccup is overtaken by a few.
  const displaced = Math.max(...order.map((i, at) => Math.abs(i - at)));
  expect(displaced).toBeLessThan(50);
});
