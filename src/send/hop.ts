import type { Dispatcher } from "undici";
import { RedisUnavailableError } from "../errors.js";
import { awaitSlot } from "../gate/line.js";
import { keepWarm, reportStart, reserve, returnSlot, type Slot } from "../gate/slot.js";
import type { BucketRef } from "../limits/define.js";
import type { Context } from "../redis/context.js";
import { sleep } from "../redis/sleep.js";
import { attempt, type AttemptResponse } from "./attempt.js";
import { watching } from "./exchange.js";
import { headersOf } from "./feedback/headers.js";
import { heed, HEARD_BYTES, isBodyHeard } from "./heed.js";
import { FailedStatus, isFailure } from "./retry.js";
import type { Hop, Route } from "./route.js";

export interface Sending {
  readonly context: Context;
  readonly dispatcher: Dispatcher;
  /** The worker closes: waits end, and calls that are not in flight go back to the queue. */
  readonly closing: AbortSignal;
  /** The worker will not wait any longer for calls in flight. */
  readonly giveUp: AbortSignal;
}

/** How far a call has got here. */
export interface Progress {
  /** Attempts that have been made. */
  made: number;
  /** Those of them that count. */
  counted: number;
  /** The slot that came with the call, until it is used. */
  slot: Slot | undefined;
  /** Start of the first attempt here, in µs of the server's clock. */
  startedAt: number | undefined;
  /** A server may have taken it. */
  inFlight: boolean;
}

/** The call whose requests these are. */
interface Call {
  readonly ref: BucketRef;
  readonly attempts: number;
  readonly deadline: number | undefined;
}

const AGAIN_MS = 250;
/** What a limit adds, such as a token or a signature, may have run out when a request has waited longer for its slot. */
const FRESH_MS = 1000;

/**
 * Sends the next request of an attempt when its slot has come, and hears what the server says.
 *
 * @throws {FailedStatus} when the limit of the call counts the status as a failure, or it is a refusal.
 * @throws whatever else prevents a response.
 */
export async function sendNext(
  sending: Sending,
  call: Call,
  route: Route,
  progress: Progress,
): Promise<AttemptResponse> {
  const { context, dispatcher, giveUp } = sending;
  const { clock } = context.session;
  const { limit } = call.ref;
  const { request, ref } = route.hop;
  // Waiting ends a call that has not been sent; once it has been, it is the attempts that do.
  const deadline = progress.startedAt === undefined && call.attempts === 0 ? call.deadline : undefined;
  const { headers, held } = await prepare(sending, route, progress, deadline);
  progress.startedAt ??= clock.now();
  progress.inFlight = true;
  const started = (): void => reportStart(context, ref, held, clock.now());
  const ended = (): void => keepWarm(context, ref);
  const watched = dispatcher.compose(watching({ started, ended }));
  const response = await attempt(request, headers, limit, watched, giveUp);
  const { status, body, bodyDropped } = response;
  const isHeard = isBodyHeard(ref, status) && !bodyDropped && body.byteLength <= HEARD_BYTES;
  const text = isHeard ? body.toString("utf8") : undefined;
  const feedback = await heed(context, ref, { status, headers: headersOf(response.headers), body: text }, held);
  if (isFailure(limit, status, feedback)) throw new FailedStatus(response, feedback);
  return response;
}

/** The headers first, which may take their time, and then the slot, in which the request goes out at once. */
async function prepare(
  sending: Sending,
  route: Route,
  progress: Progress,
  deadline: number | undefined,
): Promise<{ readonly headers: string[]; readonly held: Slot }> {
  const { context, closing } = sending;
  const { hop } = route;
  const headers = await route.headers(closing);
  const askedAt = performance.now();
  const { slot } = progress;
  progress.slot = undefined;
  const held = await ownSlot(sending, hop, slot, deadline);
  if (hop.ref.limit.headers === undefined || performance.now() - askedAt < FRESH_MS) return { headers, held };
  const fresh = await route.headers(closing).catch((error: unknown) => {
    returnSlot(context, hop.ref, held);
    throw error;
  });
  // Where that has taken long, the slot is late by now, and is exchanged for the next one.
  return { headers: fresh, held: await ownSlot(sending, hop, held, deadline) };
}

/** Waits for a slot however long Redis is away: the call has been accepted, and an outage must not fail it. */
async function ownSlot(
  { context, closing }: Sending,
  { ref, id, cost }: Hop,
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
