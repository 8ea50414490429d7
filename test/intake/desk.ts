import { randomBytes } from "node:crypto";
import { Redis } from "ioredis";
import {
  type Client,
  type ClientOptions,
  createClient,
  createWorker,
  defineLimits,
  type LimitOptions,
  type Limits,
  type Worker,
} from "spillway";
import { redisUrl, uniquePrefix } from "../helpers/redis.js";
import type { Upstream } from "../helpers/upstream.js";

export type Definition = Record<string, LimitOptions>;

export interface Desk extends AsyncDisposable {
  readonly client: Client;
  readonly prefix: string;
  readonly limits: Limits;
  /** A further client of the same buckets. */
  open(options?: Partial<ClientOptions>): Client;
  /** A worker of the same buckets that notices what is due within a second. */
  work(): Worker;
}

/** A client with a prefix of its own on the Redis that all tests share. It drains unless told otherwise. */
export function openDesk(definition: Definition, { worker = true }: { worker?: boolean } = {}): Desk {
  const prefix = uniquePrefix();
  const limits = defineLimits(definition);
  const opened: AsyncDisposable[] = [];
  const keep = <T extends AsyncDisposable>(one: T): T => {
    opened.push(one);
    return one;
  };
  const open = (options: Partial<ClientOptions> = {}): Client =>
    keep(createClient({ redis: redisUrl(), prefix, limits, ...options }));
  return {
    client: open({ worker }),
    prefix,
    limits,
    open,
    work: () => keep(createWorker({ redis: redisUrl(), prefix, limits, lockDuration: "1s" })),
    async [Symbol.asyncDispose]() {
      await Promise.all(opened.map((one) => one[Symbol.asyncDispose]()));
    },
  };
}

/** Two servers, of which one may lead to the other, and a desk whose limits cover both. */
export interface Pair extends AsyncDisposable {
  readonly desk: Desk;
  readonly from: Upstream;
  readonly to: Upstream;
}

export function openPair(
  { from, to }: Pick<Pair, "from" | "to">,
  define?: (from: string, to: string) => Definition,
  options?: Parameters<typeof openDesk>[1],
): Pair {
  const both = (a: string, b: string): Definition => ({ [a]: { rate: "1000/s" }, [b]: { rate: "1000/s" } });
  const desk = openDesk((define ?? both)(from.host, to.host), options);
  const end = async (): Promise<void> => {
    await desk[Symbol.asyncDispose]();
    await Promise.all([from.close(), to.close()]);
  };
  return { desk, from, to, [Symbol.asyncDispose]: end };
}

/** A limit name that no other test has, for `run`. */
export const name = (): string => `name-${randomBytes(4).toString("hex")}`;

/** Everything that is stored under a prefix: keys, and all that they hold, but for the counts of what happened. */
export async function stored(prefix: string): Promise<Map<string, string>> {
  const redis = new Redis(redisUrl());
  try {
    const all = new Map<string, string>();
    for await (const keys of redis.scanStream({ match: `${prefix}*`, count: 1000 }) as AsyncIterable<string[]>) {
      for (const key of keys) if (!key.endsWith(":usage")) all.set(key, JSON.stringify(await read(redis, key)));
    }
    return all;
  } finally {
    redis.disconnect();
  }
}

async function read(redis: Redis, key: string): Promise<unknown> {
  const type = await redis.type(key);
  if (type === "string") return redis.get(key);
  if (type === "hash") return redis.hgetall(key);
  if (type === "list") return redis.lrange(key, 0, "-1");
  if (type === "set") return redis.smembers(key);
  if (type === "zset") return redis.zrange(key, 0, "-1", "WITHSCORES");
  if (type === "stream") return redis.xrange(key, "-", "+");
  if (type === "none") return null;
  throw new Error(`Unexpected type of ${key}: ${type}`);
}

/** How a promise ended. Attached at once, so that a rejection is never unhandled. */
export function ending(promise: Promise<unknown>): Promise<{ value?: unknown; error?: unknown }> {
  return promise.then(
    (value) => ({ value }),
    (error: unknown) => ({ error }),
  );
}
