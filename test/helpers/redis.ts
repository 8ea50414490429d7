import { randomBytes } from "node:crypto";
import { Redis } from "ioredis";
import { afterAll, inject } from "vitest";

export { hasNativeRedis, nativeRedis, type NativeRedis } from "./native-redis.js";
export { startCluster, type TestCluster } from "./cluster.js";

/** The Redis that all test files share; it may be somebody's own, so touch nothing outside your prefix. */
export function redisUrl(): string {
  return inject("redisUrl");
}

const prefixes: string[] = [];

/** A key prefix no other test has. Its keys are deleted when the test file ends. */
export function uniquePrefix(): string {
  const prefix = `test-${randomBytes(6).toString("hex")}`;
  prefixes.push(prefix);
  return prefix;
}

/** Deletes the keys that start with this prefix, and no others. */
export async function cleanup(prefix: string, url: string = redisUrl()): Promise<void> {
  await using connection = connect(url);
  await cleanupOn(connection.redis, prefix);
}

async function cleanupOn(redis: Redis, prefix: string): Promise<void> {
  for await (const keys of redis.scanStream({ match: `${prefix}*`, count: 1_000 }) as AsyncIterable<string[]>) {
    if (keys.length > 0) await redis.unlink(...keys);
  }
}

function connect(url: string): { redis: Redis } & AsyncDisposable {
  const redis = new Redis(url, { maxRetriesPerRequest: 1 });
  // Without a listener ioredis prints every lost connection; the command that needed it fails anyway.
  redis.on("error", () => {});
  return { redis, [Symbol.asyncDispose]: async () => redis.disconnect() };
}

afterAll(async () => {
  if (prefixes.length === 0) return;
  await using connection = connect(redisUrl());
  for (const prefix of prefixes.splice(0)) await cleanupOn(connection.redis, prefix);
});
