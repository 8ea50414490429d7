import { CancelledError, QueueFullError, WaitExceededError } from "../errors.js";
import type { BucketRef } from "../limits/define.js";
import { outcomes } from "../queue/outcome.js";
import type { Context } from "../redis/context.js";
import type { Message } from "../redis/mailbox.js";
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
 */
export function either(signal: AbortSignal | undefined, closing: AbortSignal): AbortSignal {
  return signal === undefined ? closing : AbortSignal.any([signal, closing]);
}

/** How long a grant that must be on its way is waited for when the wait is over. */
const GRACE_MS = 1000;

const UNATTENDED = "no worker drains this bucket; start one with createWorker, or use createClient({ worker: true })";

/** Waits until a worker grants the permit; "lost" when Redis does not know it any more. */
export function waitInQueue(
  context: Context,
  ref: BucketRef,
  id: string,
  wait: Wait,
  attended: boolean,
): Promise<Grant | "lost"> {
  const { signal } = wait;
  const { limit } = ref;
  return new Promise((resolve, reject) => {
    let settled = false;
    const settle = (end: () => void): void => {
      if (settled) return;
      settled = true;
      clearTimeout(timer);
      signal.removeEventListener("abort", onAbort);
      forget();
      end();
    };
    const onMessage = (message: Message): void => {
      if (message.type === "grant") {
        if (settled) refuseGrant(context, ref, id, message);
        stopReceiving();
        settle(() => resolve(message));
      } else if (message.type === "drop") {
        stopReceiving();
        settle(() => (message.why === "gone" ? resolve("lost") : reject(errorOf(ref, message.why, wait.maxWaitMs))));
      }
    };
    // The caller need not wait for Redis to agree. A grant that crosses the cancellation is given back.
    const abandon = (reason: unknown): void => {
      settle(() => reject(reason));
      void cancel(context, ref, id).then(() => setTimeout(stopReceiving, GRACE_MS).unref());
    };
    const onAbort = (): void => abandon(signal.reason);
    const onTimeout = (): void => {
      const hint = attended ? undefined : UNATTENDED;
      abandon(
        new WaitExceededError({ limit: limit.name, maxWait: limit.maxWaitMs ?? wait.maxWaitMs, ...(hint && { hint }) }),
      );
    };
    const stopReceiving = context.mailbox.receive(id, onMessage);
    const forget = context.keeper.permit(ref, id, () => {
      stopReceiving();
      settle(() => resolve("lost"));
    });
    const timer = setTimeout(onTimeout, Math.max(0, wait.until - performance.now()));
    signal.addEventListener("abort", onAbort, { once: true });
    if (signal.aborted) onAbort();
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
