import { CancelledError, InvalidCallError, QueueFullError, WaitExceededError } from "../errors.js";
import type { BucketRef } from "../limits/define.js";
import { outcomes } from "../queue/outcome.js";
import type { Context } from "../redis/context.js";
import { onAbort } from "../redis/abort.js";
import type { Message } from "../redis/mailbox.js";
import { later } from "../redis/sleep.js";
import { type Grant, refuseGrant } from "./flight.js";

export interface Wait {
  /** Ends the wait with its reason. */
  readonly signal: AbortSignal;
  readonly maxWaitMs: number;
  /** End of the wait, on this process's monotonic clock. */
  readonly until: number;
}

/**
 * Aborts with either of them. Never listens to the caller's own signal itself: many calls may share that one, and Node
 * warns of more than ten listeners.
 *
 * @throws {InvalidCallError} for what is no signal.
 */
export function either(signal: AbortSignal | undefined, closing: AbortSignal): Either {
  if (signal === undefined) return { signal: closing, release: () => {} };
  if (!isSignal(signal)) throw new InvalidCallError("Expected `signal` to be an AbortSignal, not its controller");
  const both = new AbortController();
  const sources = [signal, closing];
  const aborted = sources.find((one) => one.aborted);
  if (aborted !== undefined) both.abort(aborted.reason);
  const stops = sources.map((one) => onAbort(one, () => both.abort(one.reason)));
  return { signal: both.signal, release: () => stops.forEach((stop) => stop()) };
}

/** By its shape: it may be of another realm, or of a library. */
export const isSignal = (value: unknown): value is AbortSignal =>
  typeof value === "object" && value !== null && "aborted" in value && "addEventListener" in value;

export interface Either {
  readonly signal: AbortSignal;
  /** To be called when nobody waits any more. `AbortSignal.any` has no such thing: what lives long remembers every call. */
  readonly release: () => void;
}

/** What arrives for one permit. */
export interface Inbox {
  /** Hands over what has arrived already, and from now on whatever arrives. */
  read(receive: (message: Message) => void): void;
  close(): void;
}

/**
 * To be opened before the permit is admitted: the worker of this same process may grant it before the reply to the
 * admission has been dealt with.
 */
export function openInbox({ mailbox }: Context, id: string): Inbox {
  const early: Message[] = [];
  let receive = (message: Message): void => void early.push(message);
  const close = mailbox.receive(id, (message) => receive(message));
  const read = (next: (message: Message) => void): void => {
    receive = next;
    for (const message of early) next(message);
  };
  return { read, close };
}

/** How long a grant that may be on its way is waited for. */
const GRACE_MS = 1000;

const UNATTENDED = "no worker drains this bucket; start one with createWorker, or use createClient({ worker: true })";

/** Waits until a worker grants the permit; "lost" when Redis does not know it any more. */
export function waitInQueue(
  context: Context,
  ref: BucketRef,
  id: string,
  wait: Wait,
  attended: boolean,
  inbox: Inbox,
): Promise<Grant | "lost"> {
  const { signal } = wait;
  const { limit } = ref;
  return new Promise((resolve, reject) => {
    let settled = false;
    const settle = (end: () => void): void => {
      if (settled) return;
      settled = true;
      stopTimer();
      stopListening();
      forget();
      end();
    };
    const onMessage = (message: Message): void => {
      if (message.type === "grant") {
        if (settled) refuseGrant(context, ref, id, message);
        inbox.close();
        settle(() => resolve(message));
      } else if (message.type === "drop") {
        inbox.close();
        settle(() => (message.why === "gone" ? resolve("lost") : reject(errorOf(ref, message.why, wait.maxWaitMs))));
      }
    };
    // The caller need not wait for Redis to agree. A grant that crosses the cancellation is given back.
    const abandon = (reason: unknown): void => {
      settle(() => reject(reason));
      void cancel(context, ref, id).then(() => setTimeout(() => inbox.close(), GRACE_MS).unref());
    };
    const abort = (): void => abandon(signal.reason);
    const onTimeout = (): void => {
      const hint = attended ? undefined : UNATTENDED;
      abandon(new WaitExceededError({ limit: limit.name, maxWait: wait.maxWaitMs, ...(hint && { hint }) }));
    };
    const forget = context.keeper.permit(ref, id, () => {
      inbox.close();
      settle(() => resolve("lost"));
    });
    const stopTimer = later(wait.until - performance.now(), onTimeout);
    const stopListening = onAbort(signal, abort);
    context.mailbox.open();
    inbox.read(onMessage);
    if (signal.aborted && !settled) abort();
  });
}

async function cancel({ session, report }: Context, ref: BucketRef, id: string): Promise<void> {
  try {
    const outcome = outcomes.cancelled(ref.limit.name, "given up by its caller");
    await session.run(ref, "cancel", ["", id, 0, outcome]);
  } catch (error) {
    // The lease runs out, and the permit with it.
    report.connection(error);
  }
}

function errorOf({ limit }: BucketRef, why: string, maxWait: number): Error {
  if (why === "full") {
    const { capacity } = limit;
    return new QueueFullError({ limit: limit.name, capacity, depth: capacity, retryAfter: 0, dropped: true });
  }
  if (why === "expired") return new WaitExceededError({ limit: limit.name, maxWait });
  return new CancelledError("The bucket was cleared while this call waited");
}
