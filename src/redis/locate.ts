import { RedisUnavailableError } from "../errors.js";
import type { Reporter } from "../observe/events.js";
import type { RedisOption } from "./connect.js";
import { type EmbeddedRedis, startEmbeddedRedis } from "./embedded.js";

interface Located {
  readonly redis: RedisOption;
  readonly release: () => Promise<void>;
}

let shared: { readonly server: Promise<EmbeddedRedis>; users: number } | undefined;

/**
 * The Redis that was asked for, or `REDIS_URL`, or the embedded Valkey that all clients and workers of this process
 * share. In production there is no default: a queue in memory would be lost without a word.
 */
export async function locate(option: RedisOption | undefined, report: Reporter): Promise<Located> {
  const given = option ?? process.env["REDIS_URL"];
  if (given !== undefined && given !== "") return { redis: given, release: async () => {} };
  if (process.env["NODE_ENV"] === "production") {
    throw new RedisUnavailableError(
      "Expected `redis` or the environment variable REDIS_URL: in production there is no embedded default",
    );
  }
  shared ??= { server: startEmbeddedRedis(), users: 0 };
  const mine = shared;
  if (mine.users++ === 0) report.embedded();
  try {
    const server = await mine.server;
    return { redis: server.url, release: () => leave(mine) };
  } catch (error) {
    if (shared === mine) shared = undefined;
    throw error;
  }
}

async function leave(server: NonNullable<typeof shared>): Promise<void> {
  if (--server.users > 0) return;
  if (shared === server) shared = undefined;
  await (await server.server).close();
}
