import type { TestProject } from "vitest/node";

declare module "vitest" {
  interface ProvidedContext {
    redisUrl: string;
  }
}

/** One Redis for the whole run: REDIS_URL, else an embedded Valkey. Tests keep apart by prefix. */
export default async function setup(project: TestProject): Promise<(() => Promise<void>) | undefined> {
  const url = process.env.REDIS_URL;
  if (url !== undefined && url !== "") {
    project.provide("redisUrl", url);
    return undefined;
  }
  const { startEmbeddedRedis } = await import("../../dist/redis/embedded.js");
  const redis = await startEmbeddedRedis();
  project.provide("redisUrl", redis.url);
  return () => redis.close();
}
