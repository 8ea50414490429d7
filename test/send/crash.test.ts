import { createClient, defineLimits, SpillwayError } from "spillway";
import { expect, test, vi } from "vitest";
import { redisUrl, uniquePrefix } from "../helpers/redis.js";
import { startUpstreamThread } from "../helpers/upstream.js";
import { until } from "../helpers/wait.js";
import { arrived, endAll, look, numbers, startNode, startNodes } from "./nodes.js";

// Generous: only a hang should end a test on a busy machine.
vi.setConfig({ testTimeout: 90_000 });

test("when a worker is killed nothing is lost, and nothing sent twice that must not be", async () => {
  await using upstream = await startUpstreamThread({ latencyMs: 500 });
  const prefix = uniquePrefix();
  const limits = { [upstream.host]: { rate: "60/s", lateness: "50ms" } } as const;
  const worker = { lockDuration: "1s" };
  const doomed = await startNode("worker", { prefix, limits, worker });
  await using client = createClient({ redis: redisUrl(), prefix, limits: defineLimits(limits) });

  const kinds = {
    get: { method: "GET" },
    post: { method: "POST", body: "x" },
    keyed: { method: "POST", body: "x", headers: { "idempotency-key": "k" } },
  };
  const calls = [];
  for (let i = 0; i < 30; i++) {
    for (const [kind, init] of Object.entries(kinds)) {
      const name = `${kind}-${i}`;
      calls.push({ kind, name, ticket: await client.enqueue(`${upstream.url}/?n=${name}`, init) });
    }
  }
  // About 30 are in flight then, and 30 wait.
  await arrived(upstream, 60);
  await doomed.kill("SIGKILL");
  const heir = await startNode("worker", { prefix, limits, worker });

  const ends = await Promise.all(
    calls.map(async ({ kind, name, ticket }) => {
      const end = await ticket.result().then(
        ({ status }) => status,
        (error: unknown) => (error instanceof SpillwayError ? error.code : String(error)),
      );
      return { kind, name, end };
    }),
  );
  await heir.end();
  const times = new Map<string, number>();
  for (const name of numbers(await upstream.read())) times.set(name, (times.get(name) ?? 0) + 1);
  const twice = { get: 0, post: 0, keyed: 0 } as Record<string, number>;
  for (const { kind, name, end } of ends) {
    const sent = times.get(name) ?? 0;
    if (sent > 1) twice[kind] = (twice[kind] ?? 0) + 1;
    const allowed = kind === "post" ? sent <= 1 && [200, "ERR_MAYBE_SENT"].includes(end) : sent >= 1 && end === 200;
    expect({ name, sent, end, allowed }).toMatchObject({ allowed: true });
  }
  // All three kinds were in flight.
  expect(ends.filter(({ end }) => end === "ERR_MAYBE_SENT").length).toBeGreaterThan(0);
  expect(twice["get"]).toBeGreaterThan(0);
  expect(twice["keyed"]).toBeGreaterThan(0);
  expect(ends.filter(({ kind, end }) => kind === "post" && end === 200).length).toBeGreaterThan(10);
});

test("when the worker that has the turn is killed, another goes on soon", async () => {
  await using upstream = await startUpstreamThread();
  await using redis = look();
  const prefix = uniquePrefix();
  const limits = { [upstream.host]: { rate: "5/s" } } as const;
  // Locks are long, so that no check of them is what repairs it.
  const workers = await startNodes(3, "worker", { prefix, limits });
  await using client = createClient({ redis: redisUrl(), prefix, limits: defineLimits(limits) });
  await client.enqueueMany(Array.from({ length: 100 }, (_, i) => ({ url: `${upstream.url}/?n=${i}` })));
  // The turn has gone round once: others have heard of the bucket.
  await arrived(upstream, 9);

  const gate = `${prefix}:{${encodeURIComponent(upstream.host)}}:gate`;
  const turn = await redis.hget(gate, "turn");
  const holder = workers.find(({ address }) => address === turn);
  expect(holder).toBeDefined();
  await holder?.kill("SIGKILL");
  const killed = performance.now();
  const resumed = async () => (await upstream.read()).arrivals.filter(({ at }) => at > killed + 100).length >= 5;
  await until(resumed, { timeout: 8_000, what: "arrivals after the kill" });
  await endAll(workers.filter((worker) => worker !== holder));
  const seen = await upstream.read();
  const next = seen.arrivals.find(({ at }) => at > killed)?.at ?? Infinity;
  // The tenure of a turn is 2 s beyond its slot; a second more for a busy machine.
  expect(next - killed).toBeLessThan(3_200);
  expect(new Set(numbers(seen)).size).toBe(seen.arrivals.length);
});
