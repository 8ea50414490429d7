import { setTimeout as sleep } from "node:timers/promises";
import { createClient, defineLimits } from "spillway";
import { expect, test, vi } from "vitest";
import { redisUrl, uniquePrefix } from "../helpers/redis.js";
import { startUpstreamThread } from "../helpers/upstream.js";
import { until } from "../helpers/wait.js";
import { endAll, type Ends, look, numbers, startNodes, total } from "./nodes.js";

// Generous: only a hang should end a test on a busy machine.
vi.setConfig({ testTimeout: 90_000 });

// Everything that capacity bounds, seen in one atomic step and independently of the scripts under test.
const DEPTH = `
  local base = KEYS[1]
  local t = redis.call('TIME')
  local now = tonumber(t[1]) * 1000000 + tonumber(t[2])
  return redis.call('LLEN', base .. 'wait') + redis.call('LLEN', base .. 'paused')
    + redis.call('ZCARD', base .. 'prioritized') + redis.call('ZCARD', base .. 'delayed')
    + redis.call('ZCOUNT', base .. 'slots', string.format('(%.0f', now), '+inf')
    - tonumber(redis.call('HGET', base .. 'gate', 'again') or 0)`;

test("eight processes never get more than the capacity in, and every accepted call is sent once", async () => {
  await using upstream = await startUpstreamThread();
  await using redis = look();
  const prefix = uniquePrefix();
  const limits = { [upstream.host]: { rate: "250/s", capacity: 100 } } as const;
  const workers = await startNodes(2, "worker", { prefix, limits });
  const producers = await startNodes(8, "client", { prefix, limits });

  const key = `${prefix}:{${encodeURIComponent(upstream.host)}}:`;
  let [deepest, probes, stopped] = [0, 0, false];
  const probing = (async () => {
    while (!stopped) {
      deepest = Math.max(deepest, Number(await redis.eval(DEPTH, 1, key)));
      probes++;
    }
  })();
  const all = await Promise.all(
    producers.map((producer, i) =>
      producer.ask<Ends>("mix", { url: upstream.url, limit: upstream.host, width: 20, forMs: 3_000, tag: `${i}-` }),
    ),
  );
  stopped = true;
  await probing;

  const { ok = 0, ERR_QUEUE_FULL: refused = 0, ...others } = total(all);
  // Nothing but these two ends: offered = accepted + refused.
  expect(others).toEqual({});
  expect(refused).toBeGreaterThan(100);
  await until(async () => (await upstream.read()).arrivals.length >= ok, { what: `${ok} arrivals` });
  await endAll([...producers, ...workers]);
  const sent = numbers(await upstream.read());
  expect(sent.length).toBe(ok);
  expect(new Set(sent).size).toBe(ok);
  expect(deepest).toBeLessThanOrEqual(100);
  // It was full, and looked at often enough to have seen more than that.
  expect(deepest).toBeGreaterThan(95);
  expect(probes).toBeGreaterThan(500);
});

test("a server slower than the queue is deep does not slow the leak", async () => {
  // In flight at any time: 3 s × 20/s = 60, three times the capacity.
  await using upstream = await startUpstreamThread({ latencyMs: 3_000 });
  const prefix = uniquePrefix();
  const limits = defineLimits({ [upstream.host]: { rate: "20/s", capacity: 20, lateness: "50ms" } });
  await using client = createClient({ redis: redisUrl(), prefix, limits, worker: true });
  const calls: Promise<string>[] = [];
  const began = performance.now();
  while (performance.now() - began < 3_000) {
    const durable = async () => (await client.enqueue(upstream.url)).result();
    const streamed = async () => (await client.fetch(upstream.url)).text();
    const call = calls.length % 2 === 0 ? durable() : streamed();
    calls.push(
      call.then(
        () => "ok",
        (error: { code: string }) => error.code,
      ),
    );
    await sleep(15);
  }
  const ends = await Promise.all(calls);
  const { arrivals } = await upstream.read();
  const during = arrivals.filter(({ at }) => at - began < 3_000);
  // 57 slots of 52.5 ms lie within 3 s. A leak that waited for answers would have sent 20.
  expect(during.length).toBeGreaterThan(40);
  expect(new Set(ends)).toEqual(new Set(["ok", "ERR_QUEUE_FULL"]));
  expect(arrivals.length).toBe(ends.filter((end) => end === "ok").length);
});
