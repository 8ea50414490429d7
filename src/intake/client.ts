import type { EventEmitter } from "node:events";
import { ClosedError, InvalidCallError, InvalidLimitError } from "../errors.js";
import { checkCallOptions, checkKeys } from "../limits/check.js";
import type { LimitName, Limits } from "../limits/define.js";
import type { SpillwayEvents } from "../observe/events.js";
import { type CallInit } from "../queue/call.js";
import { parseTicketId } from "../queue/ids.js";
import { type CallTerms, checkActualCost, TERMS } from "../queue/terms.js";
import type { RedisOption } from "../redis/connect.js";
import { checkConnection, type Context, openContext } from "../redis/context.js";
import type { FeedbackResponse } from "../send/feedback/read.js";
import { startWorker, type Worker } from "../send/worker.js";
import { type CallInput, enqueue, type EnqueuedMany, enqueueMany, type EnqueueManyOptions } from "./enqueue.js";
import { throttledFetch, type ThrottledFetch } from "./fetch.js";
import { BucketHandle, type LimitHandle } from "./handle.js";
import { acquire } from "./permit.js";
import { termsOfRun } from "./terms.js";
import { PendingTicket, type Ticket } from "./ticket.js";

export interface ClientOptions<L extends Limits = Limits> {
  /**
   * Where Redis is: a URL, ioredis options, or an ioredis client to take as a pattern.
   *
   * @default `process.env.REDIS_URL`, else an embedded Valkey, except in production
   */
  readonly redis?: RedisOption | undefined;
  /** What {@link defineLimits} returns. */
  readonly limits: L;
  /**
   * Prefix of all keys and channels in Redis. Clients and workers that belong together share it.
   *
   * @default "spillway"
   */
  readonly prefix?: string | undefined;
  /**
   * Whether this process also drains the buckets, as `createWorker` does. Without it a worker elsewhere must.
   *
   * @default false
   */
  readonly worker?: boolean;
}

export interface RunOptions extends CallTerms {
  /** Ends the wait and frees the place in the queue; passed on to the function. */
  readonly signal?: AbortSignal;
  /** Which bucket of a limit with `key`, or which host of one with a wildcard. */
  readonly key?: string;
  /** Whose quota it counts against, where the limit has an `admit` with `key`. */
  readonly producer?: string;
}

/** What the server of a function that {@link Client.run} calls has answered: a `Response`, or as much of one. */
export interface ReportedResponse extends Omit<FeedbackResponse, "body"> {
  /** Text is given to the `feedback` of the limit; anything else, such as the stream of a `Response`, is left alone. */
  readonly body?: unknown;
}

/** What a function that {@link Client.run} calls may use. */
export interface RunContext {
  /** That of the options. */
  readonly signal: AbortSignal | undefined;
  /**
   * Tells what the server has answered (a `Response`, or `{ status, headers: { get } }`), so that its limits are heard. Headers in
   * a plain object: `new Headers(…)`.
   *
   * @throws {InvalidCallError} when it is told of anything else.
   */
  report(response: ReportedResponse): void;
  /** Tells what the call has cost in fact: a number from 0 on. */
  settle(cost: number): void;
}

/** The doors through which calls come in. */
export interface Client<L extends Limits = Limits> extends AsyncDisposable {
  /**
   * As `fetch`, but waits for a slot first. Streams both ways; aborting frees the place in the queue. May be passed
   * around by itself: `new Octokit({ request: { fetch: client.fetch } })`.
   *
   * @throws {UnknownHostError} when no limit covers the host; {QueueFullError}, {BlockedError}, {WaitExceededError},
   *   {RedisUnavailableError} before anything was sent; and whatever fetch throws.
   */
  readonly fetch: ThrottledFetch;
  /** What happens inside. */
  readonly events: EventEmitter<SpillwayEvents>;
  /**
   * Runs any function when its slot has come. It counts as in flight until its promise settles.
   *
   * @throws as {@link Client.fetch}, and whatever the function throws.
   */
  run<T>(limit: LimitName<L>, call: (context: RunContext) => T, options?: RunOptions): Promise<Awaited<T>>;
  /**
   * Stores a request to be sent by a worker. It survives the death of this process and of the worker.
   *
   * @throws {QueueFullError}, {BlockedError}, {BodyTooLargeError}, {InvalidCallError}, {UnknownHostError},
   *   {RedisUnavailableError}: nothing was stored.
   */
  enqueue(url: string | URL, init?: CallInit): Promise<Ticket>;
  /** Stores many requests, in order: all or none, or as many as there is room for. */
  enqueueMany(calls: readonly CallInput[], options?: EnqueueManyOptions): Promise<EnqueuedMany>;
  /**
   * The ticket of a call that was enqueued here or in another process.
   *
   * @throws {UnknownCallError} when this is no ticket's id.
   */
  ticket(id: string): Ticket;
  /** One bucket, to look at and to control. */
  limit(name: LimitName<L>, key?: string): LimitHandle;
  /** Ends all waits with `ERR_CLOSED`, closes the worker if there is one, and all connections. */
  close(): Promise<void>;
}

const OPTIONS = ["redis", "limits", "prefix", "worker"];
const RUN_OPTIONS = [...TERMS, ...(["signal", "key", "producer"] satisfies (keyof RunOptions)[])];

/**
 * Opens a client. Connecting goes on in the background; a call made meanwhile waits for it, for a second at most.
 *
 * @throws {InvalidLimitError} when an option is wrong.
 */
export function createClient<const L extends Limits>(options: ClientOptions<L>): Client<L> {
  checkKeys(options, "createClient", OPTIONS);
  checkConnection(options);
  const { redis, prefix, limits, worker = false } = options;
  if (typeof worker !== "boolean") throw new InvalidLimitError("worker", "true or false", worker);
  const context = openContext({ redis, prefix, limits });
  return new OpenClient<L>(context, worker ? startWorker(context) : undefined);
}

/** @throws {InvalidCallError} for what is no response: heard later, it would be nobody's error. */
function readReported(response: ReportedResponse): FeedbackResponse {
  const { status, headers, body, now }: Partial<ReportedResponse> = response ?? {};
  if (typeof status !== "number" || typeof headers?.get !== "function") {
    throw new InvalidCallError("Expected a response with `status` and `headers`, a Headers or other object with get()");
  }
  return { status, headers, now, body: typeof body === "string" ? body : undefined };
}

export class OpenClient<L extends Limits> implements Client<L> {
  readonly fetch: ThrottledFetch;
  readonly context: Context;
  readonly #worker: Worker | undefined;
  readonly #closing = new AbortController();
  #closed: Promise<void> | undefined;

  constructor(context: Context, worker: Worker | undefined) {
    this.context = context;
    this.#worker = worker;
    this.fetch = throttledFetch(this);
  }

  get closing(): AbortSignal {
    return this.#closing.signal;
  }

  get drains(): boolean {
    return this.#worker !== undefined;
  }

  get events(): EventEmitter<SpillwayEvents> {
    return this.context.report.events;
  }

  async run<T>(limit: string, call: (context: RunContext) => T, options: RunOptions = {}): Promise<Awaited<T>> {
    if (typeof call !== "function") throw new InvalidCallError(`Expected a function to run, got ${typeof call}`);
    checkCallOptions(options, RUN_OPTIONS);
    const { signal, key, ...wished } = options;
    const ref = this.context.session.limits.resolve(limit, key);
    const terms = termsOfRun(ref.limit, wished);
    const permit = await acquire(this.context, ref, { terms, signal, closing: this.closing });
    const report = (response: ReportedResponse): void => permit.answered(readReported(response));
    const settle = (actual: number): void => permit.settle(checkActualCost(actual));
    try {
      return await call({ signal, report, settle });
    } finally {
      permit.release();
    }
  }

  async enqueue(url: string | URL, init: CallInit = {}): Promise<Ticket> {
    this.#mustBeOpen();
    return enqueue(this, { ...init, url });
  }

  async enqueueMany(calls: readonly CallInput[], options?: EnqueueManyOptions): Promise<EnqueuedMany> {
    this.#mustBeOpen();
    return enqueueMany(this, calls, options);
  }

  ticket(id: string): Ticket {
    const { ref, id: callId } = parseTicketId(this.context.session.limits, id);
    return new PendingTicket(this.context, ref, callId, this.closing);
  }

  limit(name: string, key?: string): LimitHandle {
    return new BucketHandle(this.context, this.context.session.limits.resolve(name, key));
  }

  #mustBeOpen(): void {
    if (this.closing.aborted) throw new ClosedError();
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    this.#closing.abort(new ClosedError());
    await this.#worker?.close();
    await this.context.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}
