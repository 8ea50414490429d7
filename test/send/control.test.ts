import { createClient, defineLimits } from "spillway";
import { expect, test } from "vitest";
import { redisUrl, uniquePrefix } from "../helpers/redis.js";
import { startUpstreamThread } from "../helpers/upstream.js";
import { until } from "../helpers/wait.js";
import { displacement, type Ends, startNode } from "./nodes.js";

/** Starts may be so little ahead of their time, and a busy machine so late with them, when a change comes over them. */
const UNDER_WAY_MS = 150;

test.each(["deliver", "fetch"])("a pause holds for calls of another process that wait already (%s)", async (door) => {
  await using upstream = await startUpstreamThread();
  const prefix = uniquePrefix();
  const limit = { rate: "100/s", lateness: "50ms" } as const;
  const other = await startNode("both", { prefix, limits: { [upstream.host]: limit } });
  await using client = createClient({ redis: redisUrl(), prefix, limits: defineLimits({ [upstream.host]: limit }) });
  const calls = other.ask<Ends>(door, { url: upstream.url, count: 80 });
  await until(async () => (await upstream.read()).arrivals.length >= 20, { what: "20 arrivals" });

  const before = performance.now();
  await client.limit(upstream.host).pause("1s", "by the test");
  const after = performance.now();
  expect((await client.limit(upstream.host).stats()).paused?.reason).toBe("by the test");
  expect((await calls).ends).toEqual({ ok: 80 });
  await other.end();

  const seen = await upstream.read();
  const during = seen.arrivals.filter(({ at }) => at > after + UNDER_WAY_MS && at < before + 1_000);
  expect(during).toEqual([]);
  const late = seen.arrivals.filter(({ at }) => at > before + 1_000);
  expect(late.length).toBeGreaterThan(20);
  // No burst makes up for the pause, and nobody has lost his place.
  expect(seen.maxInWindow(200)).toBeLessThanOrEqual(24);
  expect(displacement(seen)).toBeLessThanOrEqual(10);
});

test("a new rate holds at once for calls of another process that wait already", async () => {
  await using upstream = await startUpstreamThread();
  const prefix = uniquePrefix();
  const limit = { rate: "2/s", lateness: "50ms" } as const;
  const other = await startNode("both", { prefix, limits: { [upstream.host]: limit } });
  await using client = createClient({ redis: redisUrl(), prefix, limits: defineLimits({ [upstream.host]: limit }) });
  const bucket = client.limit(upstream.host);
  const calls = other.ask<Ends>("fetch", { url: upstream.url, count: 100 });
  await until(async () => (await upstream.read()).arrivals.length >= 2, { what: "2 arrivals" });

  await bucket.set({ rate: "100/s" });
  // At the old rate, 40 more would take 20 s.
  await until(async () => (await upstream.read()).arrivals.length >= 42, { what: "40 arrivals at the new rate" });
  await bucket.set({ rate: "2/s" });
  const slowed = performance.now();
  const sped = await until(async () => performance.now() - slowed > 1_200 && performance.now(), { what: "1.2 s" });
  await bucket.set({ rate: "100/s" });
  expect((await calls).ends).toEqual({ ok: 100 });
  await other.end();

  const seen = await upstream.read();
  const slow = seen.arrivals.filter(({ at }) => at > slowed + UNDER_WAY_MS && at < sped);
  expect(slow.length).toBeLessThanOrEqual(3);
  expect(displacement(seen)).toBeLessThanOrEqual(10);
});
