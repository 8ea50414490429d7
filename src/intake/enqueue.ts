import { checkCallOptions } from "../limits/check.js";
import { InvalidCallError, QueueFullError, QuotaExceededError } from "../errors.js";
import type { BucketRef } from "../limits/define.js";
import { admit } from "../queue/admit.js";
import { type CallInit, encodeRequest, readHeaders } from "../queue/call.js";
import { IDEMPOTENT_METHODS } from "../limits/retry.js";
import { newId, ownId } from "../queue/ids.js";
import { readDedupe, TERMS, type Terms } from "../queue/terms.js";
import type { Context } from "../redis/context.js";
import { termsOf } from "./terms.js";
import { PendingTicket, type Ticket } from "./ticket.js";

/** One call of `enqueueMany`. */
export interface CallInput extends CallInit {
  readonly url: string | URL;
}

export interface EnqueueManyOptions {
  /**
   * `"all"`: none is accepted unless all are; they must share one bucket. `"fit"`: as many as there is room for, in
   * order; what follows in the same bucket is refused.
   *
   * @default "all"
   */
  readonly mode?: "all" | "fit";
}

export interface EnqueuedMany {
  /** Tickets of the accepted calls, in the order given. */
  readonly tickets: readonly Ticket[];
  /** The calls that found no room, in the order given. Empty with mode "all". */
  readonly refused: readonly CallInput[];
  /** With mode "fit": what ended it when some calls had been accepted already; those that were not are in `refused`. */
  readonly error?: unknown;
}

const CALL_OPTIONS = [
  ...TERMS,
  ...(["url", "method", "headers", "body", "redirect", "id", "dedupe"] satisfies (keyof CallInput)[]),
];
const MANY_OPTIONS = ["mode"] satisfies (keyof EnqueueManyOptions)[];

interface Prepared {
  readonly input: CallInput;
  readonly ref: BucketRef;
  readonly id: string;
  readonly data: string;
  readonly terms: Terms;
}

/** Most calls that one script adds: Redis serves nobody else meanwhile. */
const MOST = 10_000;
const CHUNK = 500;

async function prepare(context: Context, input: CallInput): Promise<Prepared> {
  checkCallOptions(input, CALL_OPTIONS);
  const headers = readHeaders(input.headers);
  const ref = context.session.limits.match(input.url, { method: input.method?.toUpperCase(), headers });
  const id = input.id === undefined ? newId() : ownId(input.id);
  const url = new URL(input.url);
  const method = input.method?.toUpperCase() ?? "GET";
  if (ref.limit.idempotency && !IDEMPOTENT_METHODS.includes(method) && !headers.has("idempotency-key")) {
    headers.set("idempotency-key", input.id ?? id);
  }
  const request = await encodeRequest(url, input, headers, ref.limit.maxRequestBytes);
  const body = request.encoding === undefined ? request.body : undefined;
  const terms = termsOf(ref.limit, { url, method, headers, body }, input);
  const dedupe = readDedupe(input.dedupe);
  return { input, ref, id, data: JSON.stringify(request), terms: { ...terms, dedupe } };
}

/** The tickets of what was accepted: the first so many calls. */
async function add(
  { context, closing, drains }: Door,
  ref: BucketRef,
  calls: readonly Prepared[],
  mode: "all" | "fit",
): Promise<Ticket[]> {
  // Until others can see the worker of this process, a call seems to have none.
  if (drains) await context.session.visible();
  const named = calls.some(({ input }) => input.id !== undefined);
  const admission = { kind: "request", calls, named, mode, maxWaitMs: ref.limit.maxWaitMs, horizon: 0 } as const;
  const admitted = await admit(context, ref, admission);
  if (admitted.granted) throw new Error("A durable call cannot be granted at once");
  const { count, known, firstAt, lastAt } = admitted;
  const added = count - known.size;
  const step = added > 1 ? (lastAt - firstAt) / (added - 1) : 0;
  let at = firstAt;
  return calls.slice(0, count).map(({ id }, i) => {
    const before = known.get(i);
    if (before !== undefined) return new PendingTicket(context, ref, before, closing);
    const expectedAt = new Date(at / 1000);
    at += step;
    return new PendingTicket(context, ref, id, closing, expectedAt);
  });
}

/** What the durable door needs of its client. */
interface Door {
  readonly context: Context;
  readonly closing: AbortSignal;
  /** Whether this process has a worker. */
  readonly drains: boolean;
}

export async function enqueue(door: Door, input: CallInput): Promise<Ticket> {
  const call = await prepare(door.context, input);
  const [ticket] = await add(door, call.ref, [call], "all");
  if (ticket === undefined) throw new Error("Expected one ticket for one call");
  return ticket;
}

/** @throws whatever {@link enqueue} throws; with mode "all" nothing has been stored then. */
export async function enqueueMany(
  door: Door,
  inputs: readonly CallInput[],
  options: EnqueueManyOptions = {},
): Promise<EnqueuedMany> {
  checkCallOptions(options, MANY_OPTIONS);
  const { mode = "all" } = options;
  if (mode !== "all" && mode !== "fit") {
    throw new InvalidCallError(`Expected mode to be "all" or "fit", got ${String(mode)}`);
  }
  const calls = await Promise.all(inputs.map((input) => prepare(door.context, input)));
  const buckets = new Map<string, Prepared[]>();
  for (const call of calls) {
    const others = buckets.get(call.ref.bucket);
    if (others === undefined) buckets.set(call.ref.bucket, [call]);
    else others.push(call);
  }
  if (mode === "all") return addAll(door, calls, buckets.size);
  const tickets = new Map<Prepared, Ticket>();
  let failure: { readonly error: unknown } | undefined;
  for (const sharing of buckets.values()) {
    try {
      await fill(door, sharing, tickets);
    } catch (error) {
      // What has been accepted will be sent: its tickets must not get lost.
      if (tickets.size === 0) throw error;
      failure = { error };
      break;
    }
  }
  return {
    ...failure,
    tickets: calls.flatMap((call) => tickets.get(call) ?? []),
    refused: calls.filter((call) => !tickets.has(call)).map(({ input }) => input),
  };
}

async function addAll(door: Door, calls: readonly Prepared[], buckets: number): Promise<EnqueuedMany> {
  const [first] = calls;
  if (first === undefined) return { tickets: [], refused: [] };
  if (calls.length > MOST) throw new InvalidCallError(`Expected at most ${MOST} calls at once, got ${calls.length}`);
  if (buckets > 1) {
    throw new InvalidCallError(
      'Calls to several buckets cannot be accepted as one: use mode "fit", or a call for each',
    );
  }
  return { tickets: await add(door, first.ref, calls, "all"), refused: [] };
}

/** Adds calls of one bucket, some at a time, until one finds no room. */
async function fill(door: Door, calls: readonly Prepared[], tickets: Map<Prepared, Ticket>): Promise<void> {
  for (let at = 0; at < calls.length; at += CHUNK) {
    const chunk = calls.slice(at, at + CHUNK);
    const [first] = chunk;
    if (first === undefined) return;
    const added = await addSome(door, first.ref, chunk);
    for (const [i, ticket] of added.entries()) {
      const call = chunk[i];
      if (call !== undefined) tickets.set(call, ticket);
    }
    if (added.length < chunk.length) return;
  }
}

async function addSome(door: Door, ref: BucketRef, chunk: readonly Prepared[]): Promise<Ticket[]> {
  try {
    return await add(door, ref, chunk, "fit");
  } catch (error) {
    if (error instanceof QueueFullError || error instanceof QuotaExceededError) return [];
    throw error;
  }
}
