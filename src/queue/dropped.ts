import type { BucketRef } from "../limits/define.js";
import type { Context } from "../redis/context.js";
import { ticketId } from "./ids.js";
import { outcomes } from "./outcome.js";
import { tellWaiters } from "./waiters.js";

/**
 * Tells whoever waits for a call that it has left the queue. A waiting permit's process is told why; a process that
 * waits for a durable call gets the outcome that the script has stored.
 *
 * @param dropped why, id, the permit's process or "", and the processes that wait for a durable call.
 */
export function notifyDropped(context: Context, ref: BucketRef, dropped: readonly string[]): void {
  const [why = "", id = "", client = "", ...waiters] = dropped;
  const { mailbox, report } = context;
  report.tell("drop", { limit: ref.limit.name, bucket: ref.bucket, id: ticketId(ref.bucket, id), why });
  if (client !== "")
    mailbox.post(client, { type: "drop", id, why }).catch((error: unknown) => report.connection(error));
  tellWaiters(context, waiters, outcomeOf(ref, why));
}

function outcomeOf({ limit }: BucketRef, why: string): string {
  if (why === "full") return outcomes.dropped(limit.name, limit.capacity);
  if (why === "expired") return outcomes.expired(limit.name, limit.maxWaitMs ?? 0);
  return outcomes.cancelled(limit.name, `The call was ${why} before it was sent`);
}
