import { type Client, createClient, createWorker, type RedisOption, type Worker } from "../index.js";
import { startEmbeddedRedis } from "../redis/embedded.js";
import type { Setting } from "./config.js";

/** The queue of a run, and the worker that sends what is in it. */
export interface Connection {
  readonly client: Client;
  readonly worker: Worker;
  close(): Promise<void>;
}

/** Shorter than the default of the library: the next run waits so long for what a killed one had in flight. */
const LOCK = "5s";

/** @param say what a person should know. */
export async function connect(
  { limits, redis, prefix }: Setting,
  concurrency: number | undefined,
  say: (message: string) => void,
): Promise<Connection> {
  const embedded = redis === undefined ? await startEmbeddedRedis() : undefined;
  if (embedded !== undefined) say("no --redis and no REDIS_URL: using an embedded Valkey, which ends with this run");
  const shared = { redis: embedded?.url ?? (redis satisfies RedisOption | undefined), limits, prefix };
  const client = createClient(shared);
  const worker = createWorker({ ...shared, lockDuration: LOCK, ...(concurrency !== undefined && { concurrency }) });
  const said = new Set<string>();
  const warn = ({ message }: Error): void => {
    if (!said.has(message)) say(`warning: ${message}`);
    said.add(message);
  };
  client.events.on("warning", warn);
  worker.events.on("warning", warn);
  const close = async (): Promise<void> => {
    await worker.close();
    await client.close();
    await embedded?.close().catch(() => {});
  };
  return { client, worker, close };
}
