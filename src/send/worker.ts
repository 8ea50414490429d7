import { randomUUID } from "node:crypto";
import { type EventEmitter, setMaxListeners } from "node:events";
import type { Dispatcher } from "undici";
import { InvalidLimitError } from "../errors.js";
import { lookAgain } from "../gate/line.js";
import { checkInteger, checkKeys, isRecord } from "../limits/check.js";
import type { BucketRef, Limits } from "../limits/define.js";
import { type Duration, parseTimer } from "../limits/duration.js";
import type { SpillwayEvents } from "../observe/events.js";
import type { Taken } from "../queue/take.js";
import { onAbort } from "../redis/abort.js";
import type { RedisOption } from "../redis/connect.js";
import { checkConnection, type Context, openContext } from "../redis/context.js";
import { LEASE_MS } from "../redis/keeper.js";
import { PATIENCE_MS } from "../redis/answer.js";
import { sleep } from "../redis/sleep.js";
import { deliver } from "./deliver.js";
import { type Carrier, Drain } from "./drain.js";
import { Sweep } from "./sweep.js";
import { Agent } from "./undici.js";

export interface WorkerOptions<L extends Limits = Limits> {
  /**
   * Where Redis is: a URL, ioredis options, or an ioredis client to take as a pattern.
   *
   * @default `process.env.REDIS_URL`, else an embedded Valkey, except in production
   */
  readonly redis?: RedisOption | undefined;
  /** The limits whose buckets this worker drains. */
  readonly limits: L;
  /**
   * Prefix of all keys and channels in Redis. Clients and workers that belong together share it.
   *
   * @default "spillway"
   */
  readonly prefix?: string | undefined;
  /**
   * Durable calls that this process carries at once, over all buckets. Must cover rate × latency. A positive integer.
   *
   * @default 1000
   */
  readonly concurrency?: number;
  /**
   * How long the calls of a process that has died stay its own before another worker gets them; renewed three times
   * within it. An event loop that is blocked for longer loses its calls. From 1 s to 24 days.
   *
   * @default "15s"
   */
  readonly lockDuration?: Duration;
  /**
   * How long `close()` waits for requests in flight before it aborts them: a duration up to 24 days.
   *
   * @default "30s"
   */
  readonly closeTimeout?: Duration;
  /**
   * The undici dispatcher that sends durable calls: a `ProxyAgent`, an `Agent` with client certificates, …. It is not
   * closed with the worker.
   *
   * @default one keep-alive `Agent` per worker
   */
  readonly dispatcher?: Dispatcher;
}

/** Drains buckets: grants waiting permits their slots, and sends durable calls. */
export interface Worker extends AsyncDisposable {
  readonly events: EventEmitter<SpillwayEvents>;
  /**
   * Stops taking calls, lets those in flight end (for `closeTimeout` at most), puts those that wait for a further
   * attempt back into their queue, and closes all connections.
   */
  close(): Promise<void>;
}

const OPTIONS = ["redis", "limits", "prefix", "concurrency", "lockDuration", "closeTimeout", "dispatcher"];

/**
 * Starts a worker. It finds the buckets that have work by itself, and survives outages of Redis.
 *
 * @throws {InvalidLimitError} when an option is wrong.
 */
export function createWorker<const L extends Limits>(options: WorkerOptions<L>): Worker {
  checkKeys(options, "createWorker", OPTIONS);
  const { redis, prefix } = options;
  checkConnection(options);
  const { leaseMs, ...carrying } = readOptions(options);
  // Whatever may be wrong has been said by now: nobody would close these connections.
  const context = openContext({ redis, prefix, limits: options.limits }, leaseMs);
  return new RunningWorker(context, carrying, () => context.close());
}

/** Starts a worker with the default options on connections that belong to somebody else. */
export function startWorker(context: Context): Worker {
  return new RunningWorker(context, readOptions({}), async () => {});
}

/** How much a worker carries, by what means, and how it ends. */
interface Carrying {
  readonly concurrency: number;
  readonly closeTimeoutMs: number;
  /** Undefined: one of its own. */
  readonly dispatcher: Dispatcher | undefined;
}

function readOptions(
  options: Pick<WorkerOptions, "concurrency" | "lockDuration" | "closeTimeout" | "dispatcher">,
): Carrying & { readonly leaseMs: number } {
  const { concurrency = 1000, lockDuration = LEASE_MS, closeTimeout = "30s", dispatcher } = options;
  if (dispatcher !== undefined && !isDispatcher(dispatcher)) {
    throw new InvalidLimitError("dispatcher", "a dispatcher of undici, such as an Agent", "something else");
  }
  return {
    concurrency: checkInteger(concurrency, "concurrency"),
    closeTimeoutMs: parseTimer(closeTimeout, "closeTimeout"),
    dispatcher,
    leaseMs: parseTimer(lockDuration, "lockDuration", { min: 1000 }),
  };
}

/** By its shape: it may be of another undici. */
const isDispatcher = (value: unknown): boolean =>
  isRecord(value) && typeof value["compose"] === "function" && typeof value["dispatch"] === "function";

class RunningWorker implements Worker, Carrier {
  readonly context: Context;
  readonly token: string = randomUUID();
  readonly #concurrency: number;
  readonly #closeTimeoutMs: number;
  readonly #dispatcher: Dispatcher;
  readonly #ownsDispatcher: boolean;
  readonly #closing = new AbortController();
  readonly #giveUp = new AbortController();
  readonly #drains = new Map<string, Drain>();
  readonly #hungry = new Set<Drain>();
  readonly #busy = new Set<Promise<void>>();
  readonly #sweep: Sweep;
  readonly #release: () => Promise<void>;
  #closed: Promise<void> | undefined;

  constructor(context: Context, carrying: Carrying, release: () => Promise<void>) {
    const { concurrency, closeTimeoutMs, dispatcher } = carrying;
    this.context = context;
    this.#release = release;
    this.#concurrency = concurrency;
    this.#closeTimeoutMs = closeTimeoutMs;
    this.#dispatcher = dispatcher ?? new Agent();
    this.#ownsDispatcher = dispatcher === undefined;
    // p-retry listens once for each backoff.
    setMaxListeners(0, this.#closing.signal);
    this.#sweep = new Sweep(context, (bucket) => this.#wake(bucket));
    context.session.notices.onReconnect.push(() => this.#lookAround());
    context.session.notices.attend((bucket) => this.#wake(bucket));
  }

  get events(): EventEmitter<SpillwayEvents> {
    return this.context.report.events;
  }

  get closing(): AbortSignal {
    return this.#closing.signal;
  }

  /** What was said while this process could not hear it is found by looking. */
  #lookAround(): void {
    for (const drain of this.#drains.values()) drain.wake();
    lookAgain(this.context);
    this.#sweep.start();
  }

  #wake(bucket: string): void {
    if (this.closing.aborted) return;
    lookAgain(this.context, bucket);
    let drain = this.#drains.get(bucket);
    if (drain === undefined) {
      const ref = this.context.session.limits.ofBucket(bucket);
      if (ref === undefined) return;
      drain = new Drain(this, ref);
      this.#drains.set(bucket, drain);
    }
    if (!this.#hungry.has(drain)) drain.wake();
  }

  room(): number {
    return this.#concurrency - this.#busy.size;
  }

  whenRoom(drain: Drain): void {
    this.#hungry.add(drain);
    if (this.room() > 0) this.#feed();
  }

  retire(drain: Drain): void {
    this.#drains.delete(drain.ref.bucket);
  }

  carry(ref: BucketRef, taken: Taken): void {
    if (taken.kind === "permit") {
      const { id, slot, address, counted } = taken;
      const grant = { type: "grant", id, slot, counted } as const;
      this.context.mailbox.post(address, grant).catch((error: unknown) => this.context.report.connection(error));
      return;
    }
    const { id, slot, job } = taken;
    const deadline = job.get("x");
    const call = {
      ref,
      id,
      token: this.token,
      slot,
      data: job.get("data") ?? "",
      admittedAt: Number(job.get("timestamp") ?? 0),
      stalls: Number(job.get("stc") ?? 0),
      attempts: Number(job.get("am") ?? 0),
      counted: Number(job.get("ac") ?? 0),
      rounds: Number(job.get("rd") ?? 0),
      deadline: deadline === undefined || deadline === "" ? undefined : Number(deadline),
      maxWaitMs: Number(job.get("m") ?? ref.limit.maxWaitMs ?? 0),
    };
    const sending = {
      context: this.context,
      dispatcher: this.#dispatcher,
      closing: this.closing,
      giveUp: this.#giveUp.signal,
    };
    const work: Promise<void> = deliver(sending, call).finally(() => {
      this.#busy.delete(work);
      this.#feed();
    });
    this.#busy.add(work);
  }

  #feed(): void {
    if (this.#hungry.size === 0) return;
    const hungry = [...this.#hungry];
    this.#hungry.clear();
    for (const drain of hungry) drain.wake();
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    this.#closing.abort();
    this.#sweep.stop();
    const timer = setTimeout(() => this.#giveUp.abort(), this.#closeTimeoutMs);
    await Promise.race([this.#settled(), this.#givenUp()]);
    clearTimeout(timer);
    if (this.#ownsDispatcher) await this.#dispatcher.destroy();
    await this.#release();
  }

  /** Some time after calls in flight were aborted: enough to tell Redis, if it is there. */
  async #givenUp(): Promise<void> {
    const { signal } = this.#giveUp;
    await new Promise<void>((resolve) => void onAbort(signal, resolve));
    await sleep(PATIENCE_MS);
  }

  /** A take that was under way may still bring calls. */
  async #settled(): Promise<void> {
    const failed = (error: unknown): void => this.context.report.connection(error);
    const leaving = Promise.all([...this.#drains.values()].map((drain) => drain.leave().catch(failed)));
    // A server that is away is not waited for.
    const enough = new AbortController();
    await Promise.race([leaving, sleep(PATIENCE_MS, enough.signal)]);
    enough.abort();
    while (this.#busy.size > 0) await Promise.all(this.#busy);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}
