import { MaybeSentError, SpillwayError, UnknownHostError, UpstreamError } from "../errors.js";
import { returnSlot, type Slot, spendRetry } from "../gate/slot.js";
import type { BucketRef } from "../limits/define.js";
import { UNIT_MS } from "../limits/duration.js";
import { decodeRequest, isIdempotent, type StoredRequest } from "../queue/call.js";
import { finish, redeliver, requeue } from "../queue/finish.js";
import { ticketId } from "../queue/ids.js";
import type { Answer, Failure } from "../queue/outcome.js";
import type { AttemptResponse } from "./attempt.js";
import { type Progress, sendNext, type Sending } from "./hop.js";
import { FailedAttempt, FailedStatus, isUnwanted, withRetries } from "./retry.js";
import { Route } from "./route.js";

/** A durable call that a worker has taken, as BullMQ stores it. */
export interface TakenCall {
  readonly ref: BucketRef;
  readonly id: string;
  readonly token: string;
  readonly slot: Slot;
  readonly data: string;
  /** Admission, in ms of the server's clock. */
  readonly admittedAt: number;
  /** How often BullMQ has handed it out again because its worker fell silent. */
  readonly stalls: number;
  /** Attempts that have been made before, and those of them that count. */
  readonly attempts: number;
  readonly counted: number;
  /** How often it has come back after all its attempts had failed. */
  readonly rounds: number;
  readonly deadline: number | undefined;
  /** The wait that ends there. */
  readonly maxWaitMs: number;
}

/** Sends a durable call as often as it takes, and keeps its outcome. Never throws. */
export async function deliver(sending: Sending, call: TakenCall): Promise<void> {
  const { context } = sending;
  const unlock = context.keeper.lock(call.ref, call.id, call.token);
  try {
    await deliverLocked(sending, call);
  } catch (error) {
    // Its lock runs out, and then another worker gets it.
    context.report.warn(error);
  } finally {
    unlock();
  }
}

async function deliverLocked(sending: Sending, call: TakenCall): Promise<void> {
  const end = await send(sending, call);
  // Not where the sending is caught: that its outcome could not be kept is not how a call has ended.
  if (end !== undefined) await finish(sending.context, call, end.outcome, end.body, sending.giveUp);
}

interface End {
  readonly outcome: Answer | Failure;
  readonly body?: Buffer;
}

/** How the call has ended; undefined when it is back in the queue. */
async function send(sending: Sending, call: TakenCall): Promise<End | undefined> {
  const { context, closing } = sending;
  const { attempts: made, counted, slot } = call;
  const progress: Progress = { made, counted, slot, startedAt: undefined, inFlight: false };
  let request: StoredRequest | undefined;
  try {
    request = decodeRequest(call.data);
    const { response, attempts } = await sendWithRetries(sending, call, request, progress);
    return { outcome: toAnswer(call, progress, response, attempts), body: response.body };
  } catch (error) {
    // Nothing was sent in it: another call may start then.
    if (progress.slot !== undefined) returnSlot(context, call.ref, progress.slot);
    if (error instanceof FailedAttempt && !progress.inFlight && (await comesBack(sending, call, error)))
      return undefined;
    if (error instanceof FailedAttempt || error instanceof SpillwayError) return { outcome: toFailure(call, error) };
    if (!closing.aborted) throw error;
    // The worker closes. What may have been sent and may not be sent twice ends here; anything else has time.
    const repeatable = request !== undefined && isIdempotent(request, call.ref.limit.retry.methods);
    if (!repeatable && progress.inFlight) return { outcome: toFailure(call, new MaybeSentError(call.id)) };
    const isUnsent = progress.startedAt === undefined && made === 0 && call.stalls === 0;
    await requeue(context, call, { attempts: progress.made, counted: progress.counted, isUnsent });
    return undefined;
  }
}

/** Whether a call whose attempts have all failed is sent again later; if so, it is out of our hands now. */
async function comesBack({ context, giveUp }: Sending, call: TakenCall, error: FailedAttempt): Promise<boolean> {
  const { ref, id, rounds, admittedAt } = call;
  const { name, redeliver: plan } = ref.limit;
  if (plan === undefined || rounds >= plan.attempts || isUnwanted(error)) return false;
  const longest = Math.max(plan.backoffMs, UNIT_MS.d);
  const delayMs = Math.round(Math.min(plan.backoffMs * 2 ** rounds, longest) * (1 + Math.random() / 10));
  const at = context.session.milliseconds() + delayMs;
  if (at - admittedAt > plan.maxAgeMs) return false;
  const { bucket } = ref;
  const isAside = await redeliver(context, call, { attempts: error.attempts, round: rounds + 1, delayMs }, giveUp);
  if (isAside)
    context.report.tell("redeliver", {
      limit: name,
      bucket,
      id: ticketId(bucket, id),
      at: new Date(at),
      cause: error.message,
    });
  return true;
}

async function sendWithRetries(
  sending: Sending,
  call: TakenCall,
  request: StoredRequest,
  progress: Progress,
): Promise<{ response: AttemptResponse; attempts: number }> {
  const { context, closing } = sending;
  const { clock } = context.session;
  const { ref, id, slot } = call;
  const mayRepeat = isIdempotent(request, ref.limit.retry.methods);
  if (call.stalls > 0 && !mayRepeat) throw new MaybeSentError(id);
  const route = new Route(context.session.limits, { id, ref, request, cost: slot.cost });
  const once = async (number: number): Promise<{ response: AttemptResponse; attempts: number }> => {
    // What must not be sent twice goes on where it is.
    if (mayRepeat) route.restart();
    for (;;) {
      const response = await sendNext(sending, call, route, progress);
      if (route.follow(response, number)) continue;
      progress.inFlight = false;
      progress.made = number;
      return { response, attempts: number };
    }
  };
  // Where nothing bounds the wait, a day does.
  const patientUntil = (call.deadline ?? call.admittedAt * 1000 + DAY_MICROS) / 1000;
  return withRetries(once, {
    limit: ref.limit,
    made: call.attempts,
    counted: call.counted,
    mayRepeat,
    signal: closing,
    patience: () => patientUntil - clock.now() / 1000,
    spend: () => spendRetry(context, ref),
    onFailure: (error, counted, willRetry) => {
      progress.made = error.attempts;
      progress.counted = counted;
      // A server has taken it, and has answered with a redirect.
      progress.inFlight = route.begun && !mayRepeat;
      context.report.tell("retry", {
        limit: ref.limit.name,
        bucket: ref.bucket,
        id: ticketId(ref.bucket, id),
        attempt: error.attempts,
        cause: error.message,
        willRetry,
      });
    },
  });
}

const DAY_MICROS = UNIT_MS.d * 1000;

function toAnswer(call: TakenCall, progress: Progress, response: AttemptResponse, attempts: number): Answer {
  const headers = Object.entries(response.headers).flatMap(([name, value = []]) =>
    [value].flat().map((one): [string, string] => [name, one]),
  );
  const waited = Math.max(0, (progress.startedAt ?? 0) / 1000 - call.admittedAt);
  const { status, bodyDropped } = response;
  return { ok: true, status, headers, attempts, waited: Math.round(waited * 1000) / 1000, bodyDropped };
}

function toFailure({ ref, maxWaitMs }: TakenCall, error: FailedAttempt | SpillwayError): Failure {
  const limit = ref.limit.name;
  if (error instanceof SpillwayError) {
    const failure = { ok: false, code: error.code, message: error.message, limit } as const;
    if (error instanceof UpstreamError) {
      const { attempts, status } = error;
      return { ...failure, attempts, ...(status !== undefined && { status }) };
    }
    if (error instanceof UnknownHostError) return { ...failure, host: error.host };
    return { ...failure, maxWait: maxWaitMs };
  }
  const { attempts, cause } = error;
  const message = `Failed after ${attempts === 1 ? "1 attempt" : `${attempts} attempts`}: ${error.message}`;
  const status = cause instanceof FailedStatus ? { status: cause.response.status } : { cause: error.message };
  return { ok: false, code: "ERR_UPSTREAM", message, limit, attempts, ...status };
}
