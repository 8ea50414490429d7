import type { BucketRef } from "../limits/define.js";
import type { Context } from "../redis/context.js";
import { list, text, texts } from "../redis/reply.js";
import { LONG_PATIENCE_MS } from "../redis/answer.js";
import { sleep } from "../redis/sleep.js";
import { ticketId } from "./ids.js";
import type { Answer, Failure } from "./outcome.js";
import { tellWaiters } from "./waiters.js";

/** A call that this process holds the lock of. */
export interface Held {
  readonly ref: BucketRef;
  readonly id: string;
  readonly token: string;
}

/** Failed calls that are kept per bucket, to be listed and retried. */
const KEEP_FAILED = 1000;
const AGAIN_MS = 250;

/** Keeps the outcome of a call, and tells who waits for it. Tries until Redis answers: the request has been sent. */
export async function finish(
  context: Context,
  call: Held,
  outcome: Answer | Failure,
  body: Buffer | undefined,
  giveUp: AbortSignal,
): Promise<void> {
  const { session, report } = context;
  const { ref, id, token } = call;
  const stored = JSON.stringify(outcome);
  const reason = outcome.ok ? "" : `${outcome.code}: ${outcome.message}`;
  const end = outcome.ok ? "completed" : "failed";
  const args = ["", id, token, end, reason, KEEP_FAILED, ref.limit.keepResultsMs, stored, body ?? ""];
  const reply = await untilAnswered(() => session.run(ref, "finish", args, LONG_PATIENCE_MS), context, giveUp);
  if (text(reply[0]) === "LOST") {
    report.warn(lostError(id));
    return;
  }
  const { name } = ref.limit;
  const status = outcome.status;
  const { attempts = 0 } = outcome;
  report.tell("finish", {
    limit: name,
    bucket: ref.bucket,
    id: ticketId(ref.bucket, id),
    ok: outcome.ok,
    status,
    attempts,
  });
  tellWaiters(context, texts(list(reply[2])), stored, body ?? Buffer.alloc(0));
}

async function untilAnswered<T>(run: () => Promise<T>, { report }: Context, giveUp: AbortSignal): Promise<T> {
  for (;;) {
    try {
      return await run();
    } catch (error) {
      if (giveUp.aborted) throw error;
      report.connection(error);
      await sleep(AGAIN_MS, giveUp);
    }
  }
}

/** Puts a call that waits for its first or a further attempt back at the head of its queue. */
export async function requeue(
  { session }: Context,
  { ref, id, token }: Held,
  { attempts, counted, isUnsent }: { attempts: number; counted: number; isUnsent: boolean },
): Promise<void> {
  await session.run(ref, "requeue", ["", id, token, attempts, counted, isUnsent ? "1" : ""]);
}

/**
 * Puts a call whose attempts have all failed aside for a while. Tries until Redis answers, as {@link finish} does.
 *
 * @returns false when the call is no longer ours.
 */
export async function redeliver(
  context: Context,
  { ref, id, token }: Held,
  { attempts, round, delayMs }: { attempts: number; round: number; delayMs: number },
  giveUp: AbortSignal,
): Promise<boolean> {
  const args = ["", id, token, delayMs, attempts, round];
  const reply = await untilAnswered(
    () => context.session.run(ref, "redeliver", args, LONG_PATIENCE_MS),
    context,
    giveUp,
  );
  const isLost = text(reply[0]) === "LOST";
  if (isLost) context.report.warn(lostError(id));
  return !isLost;
}

const lostError = (id: string): Error =>
  new Error(`Call ${id} ended here after its lock had been lost: it had ended, or another worker has it now`);
