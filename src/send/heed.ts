import { settleCost, type Slot } from "../gate/slot.js";
import type { BucketRef } from "../limits/define.js";
import { UNIT_MS } from "../limits/duration.js";
import type { Context } from "../redis/context.js";
import { number, text } from "../redis/reply.js";
import { type Feedback, type FeedbackResponse, type QuotaPolicy, readFeedback } from "./feedback/read.js";

/** What the server named last, so that it is not told to the gate with every response. */
const named = new WeakMap<Context, Map<string, { readonly windows: string; readonly at: number }>>();
/** Telling once more costs one command; remembering all that were ever told, memory without bound. */
const MOST_BUCKETS = 10_000;
const REPEAT_MS = UNIT_MS.m;
/** Windows that are named no more are forgotten after an hour, and after their own length. */
const HOLD_MS = UNIT_MS.h;
/** Each start of a window is remembered; larger ones are left to `remaining`. */
const MOST_STARTS = 10_000;

/**
 * What one server says to one call holds for all processes. Never throws.
 *
 * @param slot that the call started in.
 */
export async function heed(
  context: Context,
  ref: BucketRef,
  response: FeedbackResponse,
  slot: Slot,
): Promise<Feedback | undefined> {
  const feedback = read(context, ref, response, slot);
  if (feedback !== undefined) await apply(context, ref, response.status, feedback, slot);
  return feedback;
}

/** Reads a response, also with the limit's own reader, which may know what the call has cost. */
function read(context: Context, ref: BucketRef, response: FeedbackResponse, slot: Slot): Feedback | undefined {
  const { limit, bucket } = ref;
  const { feedback, warnings } = readFeedback(response, limit.feedback);
  if (warnings.length > 0) context.report.odd(limit.name, bucket, warnings.join("; "));
  if (feedback?.cost !== undefined) settleCost(context, ref, slot, feedback.cost);
  return feedback;
}

/** Tells the gate, where there is something to tell. */
async function apply(
  context: Context,
  ref: BucketRef,
  status: number,
  { pauseFor = 0, refused, policies, source }: Feedback,
  slot: Slot,
): Promise<void> {
  const { session, report } = context;
  const { limit, bucket } = ref;
  const windows = limit.learn ? news(context, bucket, policies) : undefined;
  const slower = limit.adaptive && refused === true;
  if (pauseFor === 0 && refused !== true && windows === undefined) return;
  const reason = `status ${status}, ${source}`;
  const pause = pauseFor > 0 ? pauseFor * 1000 : "";
  try {
    const learned = windows === undefined ? ["", ""] : [windows.text, windows.holdMs * 1000];
    const reply = await session.run(ref, "feedback", [
      "",
      pause,
      reason,
      slower ? Math.round(slot.at) : "",
      ...learned,
      refused === true ? "1" : "",
    ]);
    const until = new Date(number(reply[2]) / 1000);
    if (pauseFor > 0) report.tell("pause", { limit: limit.name, bucket, until, reason });
    if (slower) report.tell("slow", { limit: limit.name, bucket, share: Number(text(reply[3])), reason });
  } catch (error) {
    report.connection(error);
  }
}

/** Responses whose bodies may say what their headers do not: that the call was refused (a secondary limit of GitHub). */
const isTelling = (status: number): boolean => status >= 400;

/** A larger body is not looked at, neither as it came nor decoded: readers parse it, and could not parse a part of it. */
export const HEARD_BYTES = 1_048_576;

/** Whether the body of a response with this status is worth listening to. */
export const isBodyHeard = ({ limit }: BucketRef, status: number): boolean =>
  limit.feedback !== undefined || isTelling(status);

/**
 * What the body adds when status and headers have been heeded already: what the call has cost, by the limit's own reader,
 * and a refusal that only the body tells. Never throws.
 */
export async function heedBody(
  context: Context,
  ref: BucketRef,
  response: FeedbackResponse,
  slot: Slot,
): Promise<void> {
  const { status } = response;
  if (ref.limit.feedback !== undefined) read(context, ref, response, slot);
  if (!isTelling(status)) return;
  const { feedback } = readFeedback(response);
  const known = readFeedback({ ...response, body: undefined }).feedback;
  if (feedback?.refused === true && known?.refused !== true) await apply(context, ref, status, feedback, slot);
}

function news(
  context: Context,
  bucket: string,
  policies: readonly QuotaPolicy[] = [],
): { text: string; holdMs: number } | undefined {
  const windows = policies.flatMap(({ limit, perMs, unit }) =>
    unit === "requests" && perMs !== undefined && limit <= MOST_STARTS ? [{ limit, perMs }] : [],
  );
  if (windows.length === 0) return undefined;
  const told = windows.map(({ limit, perMs }) => `${limit}/${perMs * 1000}`).join(",");
  const ofContext = named.get(context) ?? new Map<string, { windows: string; at: number }>();
  named.set(context, ofContext);
  const last = ofContext.get(bucket);
  if (last?.windows === told && performance.now() - last.at < REPEAT_MS) return undefined;
  if (ofContext.size >= MOST_BUCKETS) ofContext.clear();
  ofContext.set(bucket, { windows: told, at: performance.now() });
  return { text: told, holdMs: HOLD_MS + Math.max(...windows.map(({ perMs }) => perMs)) };
}
