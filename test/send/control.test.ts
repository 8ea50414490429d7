import { createClient, defineLimits } from "spillway";
import { expect, test, vi } from "vitest";
import { redisUrl, uniquePrefix } from "../helpers/redis.js";
import { Recording, startUpstreamThread } from "../helpers/upstream.js";
import { until } from "../helpers/wait.js";
import { arrived, displacement, type Ends, startNode } from "./nodes.js";

// Generous: only a hang should end a test on a busy machine.
vi.setConfig({ testTimeout: 90_000 });

/** Starts may be so little ahead of their time, and a busy machine so late with them, when a change comes over them. */
const UNDER_WAY_MS = 300;

test.each(["deliver", "fetch"])("a pause holds for calls of another process that wait already (%s)", async (door) => {
  await using upstream = await startUpstreamThread();
  const prefix = uniquePrefix();
  const limit = { rate: "100/s", lateness: 0 } as const;
  const other = await startNode("both", { prefix, limits: { [upstream.host]: limit } });
  await using client = createClient({ redis: redisUrl(), prefix, limits: defineLimits({ [upstream.host]: limit }) });
  const calls = other.ask<Ends>(door, { url: upstream.url, count: 80 });
  await arrived(upstream, 20);

  const before = performance.now();
  await client.limit(upstream.host).pause("1500ms", "by the test");
  const after = performance.now();
  expect((await client.limit(upstream.host).stats()).paused?.reason).toBe("by the test");
  expect((await calls).ends).toEqual({ ok: 80 });
  await other.end();

  const seen = await upstream.read();
  const during = seen.arrivals.filter(({ at }) => at > after + UNDER_WAY_MS && at < before + 1_500);
  expect(during).toEqual([]);
  const late = seen.arrivals.filter(({ at }) => at > before + 1_500);
  expect(late.length).toBeGreaterThan(20);
  // No burst makes up for the pause, and nobody has lost his place by much.
  expect(new Recording(late).maxInWindow(100)).toBeLessThanOrEqual(20);
  expect(displacement(seen)).toBeLessThanOrEqual(15);
});

test("a new rate holds at once for calls of another process that wait already", async () => {
  await using upstream = await startUpstreamThread();
  const prefix = uniquePrefix();
  const limit = { rate: "2/s", lateness: 0 } as const;
  const other = await startNode("both", { prefix, limits: { [upstream.host]: limit } });
  await using client = createClient({ redis: redisUrl(), prefix, limits: defineLimits({ [upstream.host]: limit }) });
  const bucket = client.limit(upstream.host);
  const calls = other.ask<Ends>("fetch", { url: upstream.url, count: 100 });
  await arrived(upstream, 2);

  await bucket.set({ rate: "100/s" });
  // At the old rate, 40 more would take 20 s.
  await arrived(upstream, 42);
  await bucket.set({ rate: "2/s" });
  const slowed = performance.now();
  const sped = await until(async () => performance.now() - slowed > 1_500 && performance.now(), { what: "1.5 s" });
  await bucket.set({ rate: "100/s" });
  expect((await calls).ends).toEqual({ ok: 100 });
  await other.end();

  const seen = await upstream.read();
  const slow = seen.arrivals.filter(({ at }) => at > slowed + UNDER_WAY_MS && at < sped);
  expect(slow.length).toBeLessThanOrEqual(3);
  expect(displacement(seen)).toBeLessThanOrEqual(15);
});
