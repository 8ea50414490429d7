import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test, vi } from "vitest";
import { freePort } from "../helpers/processes.js";
import { hasNativeRedis, nativeRedis, uniquePrefix } from "../helpers/redis.js";
import { startUpstreamThread } from "../helpers/upstream.js";
import { until } from "../helpers/wait.js";
import { ENDED_MS, arrived, endAll, type Ends, look, type Node, numbers, startNode, startNodes } from "./nodes.js";

// Generous: only a hang should end a test on a busy machine.
vi.setConfig({ testTimeout: 90_000 });

/** What a caller waits at most to hear that there is no Redis, with some room for a busy machine. */
const SOON_MS = 2_000;

describe("no Redis at all", () => {
  test.each(["client", "both"] as const)("a %s fails soon, never hangs, and can be closed", async (role) => {
    const limits = { "127.0.0.1": { rate: "10/s" } } as const;
    const redis = `redis://127.0.0.1:${await freePort()}`;
    const node = await startNode(role, { redis, prefix: uniquePrefix(), limits });
    const all = await Promise.all([
      node.ask<Ends>("fetch", { url: "http://127.0.0.1:9", count: 20 }),
      node.ask<Ends>("enqueue", { url: "http://127.0.0.1:9", count: 20, width: 20 }),
      node.ask<Ends>("run", { limit: "127.0.0.1", count: 20 }),
    ]);
    for (const { ends, slowest } of all) {
      expect(ends).toEqual({ ERR_REDIS_UNAVAILABLE: 20 });
      expect(slowest).toBeLessThan(SOON_MS);
    }
    const { closeMs, exitMs } = await node.end();
    expect(closeMs).toBeLessThan(2_500);
    expect(exitMs).toBeLessThan(ENDED_MS);
  });

  test("a worker can be closed", async () => {
    const redis = `redis://127.0.0.1:${await freePort()}`;
    const worker = await startNode("worker", { redis, prefix: uniquePrefix(), limits: { x: { rate: "10/s" } } });
    const { closeMs, exitMs } = await worker.end();
    expect(closeMs).toBeLessThan(2_500);
    expect(exitMs).toBeLessThan(ENDED_MS);
  });
});

const idsOf = (node: Node) =>
  node.messages.filter((message) => message.type === "ticket") as unknown as { id: string; n: number }[];

describe.skipIf(!hasNativeRedis)("Redis goes away and comes back", () => {
  test.each(["killed", "stopped"] as const)(
    "%s: producers fail soon, nothing reported as failed is sent, nothing accepted is lost",
    async (how) => {
      await using server = await nativeRedis(["--appendonly", "yes", "--appendfsync", "always"]);
      await using upstream = await startUpstreamThread({ latencyMs: 200 });
      const limits = { [upstream.host]: { rate: "400/s", capacity: 10_000, lateness: "50ms" } } as const;
      const setup = { redis: server.url, prefix: uniquePrefix(), limits };
      const workers = await startNodes(2, "worker", setup);
      const producers = await startNodes(2, "client", setup);
      const offered = producers.map((producer, i) =>
        producer.ask<Ends>("enqueue", { url: upstream.url, width: 8, pauseMs: 40, forMs: 6_500, tag: `${i}-` }),
      );
      await arrived(upstream, 100);

      await server.kill(how === "killed" ? "SIGKILL" : "SIGSTOP");
      await sleep(3_000);
      const sentMeanwhile = (await upstream.read()).arrivals.length;
      if (how === "killed") await server.restart();
      else await server.kill("SIGCONT");

      const ends = await Promise.all(offered);
      const accepted = new Set(producers.flatMap((node, i) => idsOf(node).map(({ n }) => `${i}-${n}`)));
      for (const { ends: each, slowest } of ends) {
        const { ok = 0, ERR_REDIS_UNAVAILABLE: failed = 0, ...others } = each;
        expect(others).toEqual({});
        // Accepted before and after.
        expect(ok).toBeGreaterThan(30);
        expect(failed).toBeGreaterThanOrEqual(8);
        expect(slowest).toBeLessThan(SOON_MS);
      }
      await until(async () => new Set(numbers(await upstream.read())).size >= accepted.size, {
        timeout: 30_000,
        what: "all accepted calls at the server",
      });
      // Also the results of those that were in flight when it went.
      for (const producer of producers) {
        const ids = idsOf(producer).map(({ id }) => id);
        const { outcomes } = await producer.ask<{ outcomes: { status?: number; code?: string }[] }>("outcomes", {
          ids,
        });
        expect(outcomes.filter(({ status }) => status !== 200)).toEqual([]);
      }
      await endAll([...producers, ...workers]);
      const seen = numbers(await upstream.read());
      expect(new Set(seen)).toEqual(accepted);
      expect(sentMeanwhile).toBeLessThan(seen.length);
      const failed = ends.flatMap((each, i) => each.failed.map((n) => `${i}-${n}`));
      expect(failed.filter((n) => seen.includes(n))).toEqual([]);
    },
  );

  test("with its memory lost: what waits in a process is asked for anew, and policies are declared again", async () => {
    await using server = await nativeRedis();
    await using upstream = await startUpstreamThread();
    const limits = { [upstream.host]: { rate: "10/s", capacity: 77, lateness: "50ms" } } as const;
    const setup = { redis: server.url, prefix: uniquePrefix(), limits };
    const worker = await startNode("worker", setup);
    const client = await startNode("client", setup);
    const both = await startNode("both", setup);
    const calls = [
      client.ask<Ends>("fetch", { url: upstream.url, count: 12, tag: "a" }),
      client.ask<Ends>("run", { limit: upstream.host, count: 6 }),
      both.ask<Ends>("fetch", { url: upstream.url, count: 12, tag: "b" }),
    ];
    await arrived(upstream, 5);
    await server.kill("SIGKILL");
    // Long enough that no window holds starts from before and after: the memory of those is lost as well.
    await sleep(1_200);
    await server.restart();
    const ends = await Promise.all(calls);
    expect(ends.map((each) => each.ends)).toEqual([{ ok: 12 }, { ok: 6 }, { ok: 12 }]);
    // New calls as well, by all doors.
    expect((await client.ask<Ends>("deliver", { url: upstream.url, count: 3, tag: "c" })).ends).toEqual({ ok: 3 });
    await endAll([client, both, worker]);
    const seen = await upstream.read();
    expect(new Set(numbers(seen)).size).toBe(27);
    expect(seen.arrivals.length).toBe(27);
    expect(seen.maxInWindow(1_000)).toBeLessThanOrEqual(10);
    await using redis = look(server.url);
    const bucket = encodeURIComponent(upstream.host);
    expect(await redis.hget(`${setup.prefix}:{${bucket}}:gate`, "capacity")).toBe("77");
    // Workers that start now find it.
    expect(await redis.zrange(`${setup.prefix}:buckets`, 0, "-1")).toContain(bucket);
  });

  test("while it is away, a worker with calls in flight closes within its closeTimeout", async () => {
    await using server = await nativeRedis();
    await using upstream = await startUpstreamThread({ latencyMs: 500 });
    const limits = { [upstream.host]: { rate: "50/s" } } as const;
    const setup = { redis: server.url, prefix: uniquePrefix(), limits, worker: { closeTimeout: "1s" } };
    const [worker, idle] = [await startNode("worker", setup), await startNode("worker", setup)];
    const client = await startNode("client", setup);
    await client.ask<Ends>("enqueue", { url: upstream.url, count: 30 });
    await arrived(upstream, 3);
    await server.kill("SIGKILL");
    const all = await Promise.all([worker.end(), idle.end(), client.end()]);
    for (const { closeMs, exitMs } of all) {
      expect(closeMs).toBeLessThan(4_000);
      expect(exitMs).toBeLessThan(ENDED_MS);
    }
  });
});
