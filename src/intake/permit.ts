import { awaitSlot } from "../gate/line.js";
import { horizonOf, keepWarm, reportStart, settleCost } from "../gate/slot.js";
import type { BucketRef } from "../limits/define.js";
import { PERMIT_MAX_WAIT_MS } from "../limits/options.js";
import { admit } from "../queue/admit.js";
import { newId } from "../queue/ids.js";
import type { Terms } from "../queue/terms.js";
import type { Context } from "../redis/context.js";
import type { FeedbackResponse } from "../send/feedback/read.js";
import { heed, heedBody, isBodyHeard } from "../send/heed.js";
import { fly, type Grant } from "./flight.js";
import { either, openInbox, type Wait, waitInQueue } from "./wait.js";

interface PermitOptions {
  readonly terms: Terms;
  readonly signal?: AbortSignal | undefined;
  /** Ends the wait when the client is closed. */
  readonly closing: AbortSignal;
}

/** Leave to start now. */
export interface Permit {
  /** Whether it counts among the calls in flight. */
  readonly counted: boolean;
  /** The request goes out now; that may be later than the slot, when a connection has to be made first. */
  started(): void;
  /** The server has answered: what it says holds for all processes. */
  answered(response: FeedbackResponse): void;
  /** Whether the body of a response with this status may say more. */
  listens(status: number): boolean;
  /** The response has come to its end, and this is its body. */
  ended(response: FeedbackResponse): void;
  /** What the call has cost in fact. */
  settle(cost: number): void;
  /** The flight is over: makes room where the limit has a `concurrency`. */
  release(): void;
}

/**
 * Waits in the bucket's FIFO for a slot, and returns when it has come.
 *
 * @throws {QueueFullError} @throws {BlockedError} @throws {WaitExceededError} @throws {RedisUnavailableError}
 * @throws the signal's reason; the place in the queue is freed at once.
 */
export async function acquire(context: Context, ref: BucketRef, options: PermitOptions): Promise<Permit> {
  const { signal, release } = either(options.signal, options.closing);
  try {
    return await awaitTurn(context, ref, options.terms, signal);
  } finally {
    release();
  }
}

async function awaitTurn(context: Context, ref: BucketRef, terms: Terms, signal: AbortSignal): Promise<Permit> {
  signal.throwIfAborted();
  const { session } = context;
  // A permit that must wait belongs to a process that is seen to be alive.
  await session.visible();
  const maxWaitMs = terms.maxWaitMs ?? ref.limit.maxWaitMs ?? PERMIT_MAX_WAIT_MS;
  const until = performance.now() + maxWaitMs;
  const { id, grant } = await request(context, ref, terms, { signal, maxWaitMs, until });
  const land = grant.counted ? fly(context, ref, id) : (): void => {};
  const release = (): void => {
    keepWarm(context, ref);
    land();
  };
  try {
    const deadline = session.clock.now() + (until - performance.now()) * 1000;
    const slot = await awaitSlot(context, { ref, id, deadline, maxWaitMs, signal }, grant.slot);
    const started = (): void => reportStart(context, ref, slot, session.clock.now());
    const answered = (response: FeedbackResponse): void => {
      keepWarm(context, ref);
      // The headers may be those of an object that `run` was told of.
      heed(context, ref, response, slot).catch((error: unknown) => context.report.warn(error));
    };
    const settle = (cost: number): void => settleCost(context, ref, slot, cost);
    const ended = (response: FeedbackResponse): void => void heedBody(context, ref, response, slot);
    const listens = (status: number): boolean => isBodyHeard(ref, status);
    return { counted: grant.counted, listens, started, answered, ended, settle, release };
  } catch (error) {
    land();
    throw error;
  }
}

/** Asks until there is a grant. A permit that was lost (with the server's memory, or the connection) is asked anew. */
async function request(
  context: Context,
  ref: BucketRef,
  terms: Terms,
  wait: Wait,
): Promise<{ id: string; grant: Grant }> {
  for (;;) {
    const id = newId();
    const maxWaitMs = Math.max(1, wait.until - performance.now());
    const calls = [{ id, data: "{}", terms: { ...terms, maxWaitMs: undefined } }];
    const horizon = horizonOf(context);
    const inbox = openInbox(context, id);
    const admission = { kind: "permit", calls, mode: "all", maxWaitMs, horizon } as const;
    const admitted = await admit(context, ref, admission).catch((error: unknown) => {
      inbox.close();
      throw error;
    });
    if (admitted.granted) {
      inbox.close();
      return { id, grant: admitted };
    }
    const grant = await waitInQueue(context, ref, id, wait, admitted.attended, inbox);
    if (grant !== "lost") return { id, grant };
  }
}
