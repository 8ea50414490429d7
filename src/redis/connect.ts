import { Cluster, Redis, type RedisOptions } from "ioredis";
import { InvalidLimitError } from "../errors.js";
import { isRecord } from "../limits/check.js";

/**
 * Where Redis is: a URL, ioredis options, or an ioredis client (`Redis` or `Cluster`). A client is only a pattern for
 * connections of our own: it is duplicated, not used, and not closed.
 */
export type RedisOption = string | RedisOptions | Redis | Cluster;

export type Connection = Redis | Cluster;

const backoff = (attempt: number): number => Math.min(25 * 2 ** attempt, 500);

/**
 * A command is tried once. What ioredis would do by default, keep it and send it after a reconnection, adds calls that
 * their callers have long been told had failed.
 */
const ONCE = {
  // Nothing waits for a connection to be wanted: without a queue, it never would be.
  lazyConnect: false,
  enableOfflineQueue: false,
  autoResendUnfulfilledCommands: false,
  maxRetriesPerRequest: 0,
  connectTimeout: 5000,
  // A connection that swallows commands is given up for another one.
  socketTimeout: 10_000,
  // Each reply is waited for here, for its own time; a client's options are made for commands that do not block.
  commandTimeout: undefined,
  enableAutoPipelining: false,
  // ioredis waits so long for a server to agree to a disconnection, even for one that is gone: a process ends that late.
  disconnectTimeout: 250,
  // The keys have a prefix of their own, which the scripts know of.
  keyPrefix: "",
  retryStrategy: backoff,
  // The session subscribes anew by itself; what ioredis does there, nobody catches when it fails.
  autoResubscribe: false,
  // After a failover the old master answers, but may not write any more.
  reconnectOnError: (error: Error): boolean => error.message.startsWith("READONLY"),
} satisfies RedisOptions;

/** Opens one more connection to the same Redis. Errors reach `onError`; reconnecting goes on by itself. */
export function open(option: RedisOption, onError: (error: Error) => void): Connection {
  const connection = duplicate(option);
  connection.on("error", onError);
  // As many listeners as calls wait for the connection.
  connection.setMaxListeners(0);
  return connection;
}

/** Ends a connection for good. */
export function hangUp(connection: Connection): void {
  connection.disconnect();
  // Between two attempts to connect there is nothing to end, and ioredis says nothing.
  connection.emit("end");
}

function duplicate(option: RedisOption): Connection {
  if (option instanceof Cluster) {
    const { replyMapping: _mapping, ...node } = option.options.redisOptions ?? {};
    const { retryStrategy: _retry, enableOfflineQueue: _queue, lazyConnect, ...once } = ONCE;
    return option.duplicate([], {
      redisOptions: { ...node, ...once },
      enableOfflineQueue: false,
      lazyConnect,
      clusterRetryStrategy: backoff,
    });
  }
  if (option instanceof Redis) return option.duplicate(ONCE);
  if (typeof option === "string") return new Redis(option, ONCE);
  const { replyMapping: _mapping, ...given } = option;
  return new Redis({ ...given, ...ONCE });
}

export const isReady = (connection: Connection): boolean => connection.status === "ready";

/** Resolves true when the connection is ready, false when it is not within `milliseconds` or was ended. */
export function whenReady(connection: Connection, milliseconds: number): Promise<boolean> {
  if (isReady(connection)) return Promise.resolve(true);
  return new Promise((resolve) => {
    const settle = (ready: boolean) => (): void => {
      clearTimeout(timer);
      connection.off("ready", onReady);
      connection.off("end", onEnd);
      resolve(ready);
    };
    const onReady = settle(true);
    const onEnd = settle(false);
    const timer = setTimeout(onEnd, milliseconds);
    connection.on("ready", onReady);
    connection.on("end", onEnd);
  });
}

/** @throws {InvalidLimitError} when these are not a {@link RedisOption} and a prefix of keys. */
export function checkRedis(redis: unknown, prefix: unknown): void {
  if (redis !== undefined && typeof redis !== "string" && !isRecord(redis)) {
    throw new InvalidLimitError("redis", "a URL, ioredis options, or an ioredis client", redis);
  }
  if (isRecord(redis) && isForeignClient(redis)) {
    const expected = "a URL, ioredis options, or a client of the ioredis 6 that spillway uses";
    throw new InvalidLimitError("redis", expected, "a client of another ioredis");
  }
  // As node-redis takes it. Ioredis knows no such option, and would take a server of this machine.
  if (isRecord(redis) && "url" in redis) throw new InvalidLimitError("redis", "the URL itself", { url: "…" });
  if (prefix !== undefined && !(typeof prefix === "string" && /^[^{}\s]+$/.test(prefix))) {
    throw new InvalidLimitError("prefix", "a non-empty string without braces and white space", prefix);
  }
}

/** A client of another copy or version of ioredis: its fields are not options, and a server of this machine would be taken. */
const isForeignClient = (option: object): boolean =>
  "duplicate" in option && !(option instanceof Redis || option instanceof Cluster);

export const isCluster = (option: RedisOption): boolean => option instanceof Cluster;
