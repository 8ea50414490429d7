import type { Dispatcher } from "undici";
import { MaybeSentError, RedisUnavailableError, SpillwayError } from "../errors.js";
import { awaitSlot } from "../gate/line.js";
import { keepWarm, reportStart, reserve, returnSlot, type Slot, spendRetry } from "../gate/slot.js";
import type { BucketRef } from "../limits/define.js";
import { UNIT_MS } from "../limits/duration.js";
import { decodeRequest, isIdempotent, type StoredRequest } from "../queue/call.js";
import { finish, redeliver, requeue } from "../queue/finish.js";
import type { Answer, Failure } from "../queue/outcome.js";
import type { Context } from "../redis/context.js";
import { sleep } from "../redis/sleep.js";
import { attempt, type AttemptResponse, prepareHeaders } from "./attempt.js";
import { watching } from "./exchange.js";
import { headersOf } from "./feedback/headers.js";
import { heed } from "./heed.js";
import { FailedAttempt, FailedStatus, isUnwanted, withRetries } from "./retry.js";

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

export interface Sending {
  readonly context: Context;
  readonly dispatcher: Dispatcher;
  /** The worker closes: waits end, and calls that are not in flight go back to the queue. */
  readonly closing: AbortSignal;
  /** The worker will not wait any longer for calls in flight. */
  readonly giveUp: AbortSignal;
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
  const { context, giveUp } = sending;
  const progress: Progress = { made: call.attempts, counted: call.counted, startedAt: undefined, inFlight: false };
  let request: StoredRequest | undefined;
  try {
    request = decodeRequest(call.data);
    const { response, attempts } = await sendWithRetries(sending, call, request, progress);
    await finish(context, call, toAnswer(call, progress, response, attempts), response.body, giveUp);
  } catch (error) {
    if (error instanceof FailedAttempt && (await comesBack(sending, call, error))) return;
    if (error instanceof FailedAttempt || error instanceof SpillwayError) {
      await finish(context, call, toFailure(call, error), undefined, giveUp);
      return;
    }
    if (!sending.closing.aborted) throw error;
    // The worker closes. What may have been sent and may not be sent twice ends here; anything else has time.
    const repeatable = request !== undefined && isIdempotent(request, call.ref.limit.retry.methods);
    if (repeatable || !progress.inFlight) await requeue(context, call, progress.made, progress.counted);
    else await finish(context, call, toFailure(call, new MaybeSentError(call.id)), undefined, giveUp);
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
  if (isAside) context.report.tell("redeliver", { limit: name, bucket, id, at: new Date(at), cause: error.message });
  return true;
}

interface Progress {
  made: number;
  /** Those of them that count. */
  counted: number;
  /** Start of the first attempt here, in µs of the server's clock. */
  startedAt: number | undefined;
  inFlight: boolean;
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
  if (call.stalls > 0 && !mayRepeat) {
    returnSlot(context, ref, slot);
    throw new MaybeSentError(id);
  }
  let given: Slot | undefined = slot;
  const once = async (number: number): Promise<{ response: AttemptResponse; attempts: number }> => {
    const headers = await prepareHeaders(request, id, ref.limit);
    // Waiting ends a call that has not been sent; once it has been, it is the attempts that do.
    const deadline = progress.startedAt === undefined && call.attempts === 0 ? call.deadline : undefined;
    const held = await ownSlot(sending, call, given, deadline);
    given = undefined;
    progress.startedAt ??= clock.now();
    progress.inFlight = true;
    const started = (): void => reportStart(context, ref, held, clock.now());
    const ended = (): void => keepWarm(context, ref);
    const dispatcher = sending.dispatcher.compose(watching({ started, ended }));
    const response = await attempt(request, headers, ref.limit, dispatcher, sending.giveUp);
    progress.inFlight = false;
    progress.made = number;
    const { status, body } = response;
    const heardBody = status >= 400 || ref.limit.feedback !== undefined;
    const text = heardBody ? body.toString("utf8", 0, HEARD_BYTES) : undefined;
    const feedback = await heed(context, ref, { status, headers: headersOf(response.headers), body: text }, held);
    if (ref.limit.retry.statuses.includes(status)) throw new FailedStatus(response, feedback);
    return { response, attempts: number };
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
      progress.inFlight = false;
      context.report.tell("retry", {
        limit: ref.limit.name,
        bucket: ref.bucket,
        id,
        attempt: error.attempts,
        cause: error.message,
        willRetry,
      });
    },
  });
}

const AGAIN_MS = 250;
const DAY_MICROS = UNIT_MS.d * 1000;

/** Waits for a slot however long Redis is away: the call has been accepted, and an outage must not fail it. */
async function ownSlot(
  { context, closing }: Sending,
  { ref, id, slot: { cost } }: TakenCall,
  given: Slot | undefined,
  deadline: number | undefined,
): Promise<Slot> {
  for (let slot = given; ; slot = undefined) {
    try {
      const held = slot ?? (await reserve(context, ref, { id, cost }, deadline));
      return await awaitSlot(context, { ref, id, deadline, signal: closing }, held);
    } catch (error) {
      if (!(error instanceof RedisUnavailableError)) throw error;
      context.report.connection(error);
      await sleep(AGAIN_MS, closing);
      closing.throwIfAborted();
    }
  }
}

/** So much of a body is looked at for what the headers do not say. */
const HEARD_BYTES = 65_536;

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
    return { ok: false, code: error.code, message: error.message, limit, maxWait: maxWaitMs };
  }
  const { attempts, cause } = error;
  const message = `Failed after ${attempts === 1 ? "1 attempt" : `${attempts} attempts`}: ${error.message}`;
  const status = cause instanceof FailedStatus ? { status: cause.response.status } : { cause: error.message };
  return { ok: false, code: "ERR_UPSTREAM", message, limit, attempts, ...status };
}
