import { Cluster, Redis } from "ioredis";
import { createLimiter } from "spillway/limiters";
import { describe, expect, test } from "vitest";
import { hasNativeRedis, nativeRedis, redisUrl, startCluster, uniquePrefix } from "../helpers/redis.js";
import { bounded } from "../helpers/wait.js";

const rule = { algorithm: "fixed-window", limit: 100, per: "1h" } as const;
const unavailable = expect.objectContaining({ code: "ERR_REDIS_UNAVAILABLE" });
const closed = expect.objectContaining({ code: "ERR_CLOSED" });

describe("the connection", () => {
  test("is one for all limiters that were given the same Redis, and ends with the last", async () => {
    await using redis = Object.assign(new Redis(redisUrl()), { [Symbol.asyncDispose]: async () => redis.disconnect() });
    const prefix = uniquePrefix();
    const { hostname: host, port } = new URL(redisUrl());
    const options = { host, port: Number(port), connectionName: prefix };
    const count = async (): Promise<number> =>
      String(await redis.client("LIST"))
        .split("\n")
        .filter((line) => line.includes(`name=${prefix}`)).length;
    const a = createLimiter(options, { ...rule, prefix });
    const b = createLimiter(options, { ...rule, limit: 5, prefix });
    await Promise.all([a.take("k"), b.take("k")]);
    expect(await count()).toBe(1);
    await a.close();
    await expect(a.take("k")).rejects.toEqual(closed);
    await a.close();
    expect(await b.take("k")).toMatchObject({ remaining: 3 });
    const last = b.take("k");
    await b[Symbol.asyncDispose]();
    expect(await last).toMatchObject({ remaining: 2 });
    await expect.poll(count).toBe(0);
    await using again = createLimiter(options, { ...rule, limit: 5, prefix });
    expect(await again.take("k")).toMatchObject({ remaining: 1 });
  });

  test("is not the client that was given: that one is neither used nor closed", async () => {
    const client = new Redis(redisUrl(), { lazyConnect: true });
    await using limiter = createLimiter(client, { ...rule, prefix: uniquePrefix() });
    expect(await limiter.take("k")).toMatchObject({ allowed: true });
    expect(client.status).toBe("wait");
    client.disconnect();
  });

  test("to nobody fails soon", async () => {
    await using limiter = createLimiter("redis://127.0.0.1:1", rule);
    const calls = [
      limiter.take("k"),
      limiter.peek("k"),
      limiter.reset("k"),
      limiter.block("k", "1s", "x"),
      limiter.blocks(),
    ];
    const outcomes = await bounded(Promise.allSettled(calls), 5000, "an answer");
    expect(outcomes).toEqual(calls.map(() => ({ status: "rejected", reason: unavailable })));
  });

  test("answers a process that was too busy to hear it", async () => {
    await using limiter = createLimiter(redisUrl(), { ...rule, prefix: uniquePrefix() });
    await limiter.take("k");
    const calls = Array.from({ length: 20 }, () => limiter.take("k"));
    await new Promise(setImmediate);
    const end = performance.now() + 1500;
    while (performance.now() < end);
    expect((await Promise.all(calls)).map(({ allowed }) => allowed)).toEqual(calls.map(() => true));
  });

  test.skipIf(!hasNativeRedis)("that is lost fails soon, and comes back by itself", async () => {
    await using server = await nativeRedis();
    await using limiter = createLimiter(server.url, { ...rule, prefix: uniquePrefix() });
    await limiter.take("k");
    await server.kill();
    await expect(bounded(limiter.take("k"), 5000, "an answer")).rejects.toEqual(unavailable);
    await server.restart();
    // A server without memory: the scripts are brought again.
    await expect
      .poll(() => limiter.take("k").catch(() => undefined), { timeout: 10_000 })
      .toMatchObject({ allowed: true });
  });

  test.skipIf(!hasNativeRedis)("may be a cluster", { timeout: 60_000 }, async () => {
    await using nodes = await startCluster();
    const cluster = new Cluster([...nodes.startup]);
    const prefix = uniquePrefix();
    await using limiter = createLimiter(cluster, { ...rule, prefix });
    const keys = Array.from({ length: 20 }, (_, i) => `user:${i}`);
    for (const key of keys) expect(await limiter.take(key)).toMatchObject({ remaining: 99 });
    for (const key of keys.slice(0, 5)) await limiter.block(key, "1h", key);
    expect((await limiter.blocks()).map(({ reason }) => reason).sort()).toEqual(keys.slice(0, 5));
    expect(await limiter.take("user:3")).toMatchObject({ allowed: false, blocked: "user:3" });
    expect(await limiter.unblock("user:3")).toBe(true);
    await using log = createLimiter(cluster, { algorithm: "sliding-log", limit: 10, per: "1h", prefix });
    for (const key of keys) expect(await log.migrate(key, rule)).toBe(1);
    for (const key of keys) await log.reset(key);
    cluster.disconnect();
  });
});
