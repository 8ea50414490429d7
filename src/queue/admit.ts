import {
  BlockedError,
  DuplicateError,
  QueueFullError,
  QuotaExceededError,
  RedisUnavailableError,
  type SpillwayError,
} from "../errors.js";
import { readSlot, type Slot } from "../gate/slot.js";
import type { BucketRef } from "../limits/define.js";
import type { Context } from "../redis/context.js";
import { list, number, text, texts } from "../redis/reply.js";
import { LONG_PATIENCE_MS, PATIENCE_MS, UnansweredError } from "../redis/answer.js";
import { sleep } from "../redis/sleep.js";
import { notifyDropped } from "./dropped.js";
import { ticketId } from "./ids.js";
import { outcomes } from "./outcome.js";
import { encodeTerms, type Terms } from "./terms.js";

export interface Admission {
  readonly kind: "permit" | "request";
  /** Id, stored form and terms of each call; a permit stores nothing. */
  readonly calls: readonly { readonly id: string; readonly data: string; readonly terms: Terms }[];
  /** Whether ids are the callers' own, so that a call may be known already; then nothing is added for it. */
  readonly named?: boolean;
  /** Whether a bulk that does not fit is refused as a whole. */
  readonly mode: "all" | "fit";
  readonly maxWaitMs: number | undefined;
  /** How far ahead a slot may be granted at once, in µs. */
  readonly horizon: number;
}

/** All times are the server's, in µs. */
export type Admitted =
  | { readonly granted: true; readonly slot: Slot; readonly counted: boolean }
  | {
      readonly granted: false;
      /** How many of the calls, the first ones, were accepted. */
      readonly count: number;
      /** Which of those were known before, and under which id: by position from 0. */
      readonly known: ReadonlyMap<number, string>;
      /** When the first and the last of the others are expected to start. */
      readonly firstAt: number;
      readonly lastAt: number;
      readonly attended: boolean;
    };

/** The margin in which a reply to a command that was still in time may arrive. */
const REPLY_MARGIN_MS = 250;

/**
 * Admits calls in one round trip. When the reply is lost, asks again under the same ids, so that what was added is not
 * added twice; and the script refuses what arrives after the caller has been told that it failed.
 *
 * @throws {QueueFullError} @throws {BlockedError} @throws {QuotaExceededError}
 * @throws {DuplicateError} @throws {RedisUnavailableError}
 */
export async function admit(context: Context, ref: BucketRef, admission: Admission): Promise<Admitted> {
  const until = performance.now() + 1.5 * PATIENCE_MS;
  for (let doubtful = false; ;) {
    try {
      const left = Math.max(0, until - performance.now());
      return await admitOnce(context, ref, admission, doubtful, Math.min(left, PATIENCE_MS));
    } catch (error) {
      doubtful ||= error instanceof UnansweredError;
      if (error instanceof UnansweredError && performance.now() < until) continue;
      // Under an id of the caller's own, it may be somebody else's call, and asking again does no harm.
      if (doubtful && error instanceof RedisUnavailableError && admission.named !== true) {
        for (const { id } of admission.calls) void withdraw(context, ref, id);
      }
      throw error instanceof UnansweredError ? unavailable(error) : error;
    }
  }
}

const unavailable = (cause: UnansweredError): RedisUnavailableError =>
  new RedisUnavailableError(cause.message, { cause: cause.cause });

/** What admit.lua is told of all calls together; its time is that of the server. */
export function admitHead(
  { limit }: BucketRef,
  given: Pick<Admission, "mode" | "kind" | "horizon" | "maxWaitMs"> & {
    /** Latest useful time, in µs of the server's clock. */
    readonly until: number | "";
    readonly address: string;
    readonly repeated: boolean;
    readonly leaseMs: number;
  },
): (string | number)[] {
  const { until, mode, kind, address, horizon, maxWaitMs, repeated, leaseMs } = given;
  return [
    "",
    until,
    mode,
    kind,
    address,
    horizon,
    maxWaitMs === undefined ? "" : maxWaitMs * 1000,
    repeated ? "1" : "",
    limit.keepResultsMs,
    // Whatever is declared: the policy in force may be another one.
    outcomes.dropped(limit.name, limit.capacity),
    leaseMs * 1000,
    limit.admit?.text ?? "",
  ];
}

async function admitOnce(
  context: Context,
  ref: BucketRef,
  { kind, calls, named = false, mode, maxWaitMs, horizon }: Admission,
  repeated: boolean,
  patience: number,
): Promise<Admitted> {
  const { session, keeper } = context;
  await session.commands(patience);
  const head = admitHead(ref, {
    until: Math.round(session.clock.now() + patience * 1000),
    mode,
    kind,
    address: session.address,
    horizon,
    maxWaitMs,
    repeated: repeated || named,
    leaseMs: keeper.leaseMs,
  });
  const each = calls.flatMap(({ id, data, terms }) => [id, data, encodeTerms(terms)]);
  const reply = await session.run(ref, "admit", [...head, ...each], patience + REPLY_MARGIN_MS);
  return readReply(context, ref, calls, reply);
}

function readReply(context: Context, ref: BucketRef, calls: Admission["calls"], reply: readonly unknown[]): Admitted {
  const limit = ref.limit.name;
  const state = text(reply[0]);
  if (state === "GRANTED") {
    const [call] = calls;
    const slot = readSlot(call?.id ?? "", call?.terms.cost ?? 1, reply[2], reply[3], reply[4]);
    return { granted: true, slot, counted: number(reply[5]) > 0 };
  }
  if (state === "ADDED") {
    for (const dropped of list(reply[7])) notifyDropped(context, ref, ["full", ...texts(dropped)]);
    const attended = number(reply[5]) === 1;
    if (!attended) context.report.unattended(limit, ref.bucket);
    const ids = texts(list(reply[9]));
    const known = new Map(list(reply[8]).map((place, i) => [number(place), ids[i] ?? ""]));
    const [count, firstAt, lastAt] = [number(reply[2]), number(reply[3]), number(reply[4])];
    return { granted: false, count, known, firstAt, lastAt, attended };
  }
  throw refusalOf(ref, reply);
}

/** Why the calls were not admitted. */
export function refusalOf(ref: BucketRef, reply: readonly unknown[]): SpillwayError {
  const limit = ref.limit.name;
  const state = text(reply[0]);
  const until = (micros: unknown): number =>
    text(micros) === "" ? Infinity : Math.ceil(Math.max(0, number(micros) - number(reply[1])) / 1000);
  if (state === "DUPLICATE") return new DuplicateError({ limit, id: ticketId(ref.bucket, text(reply[2])) });
  if (state === "QUOTA") {
    return new QuotaExceededError({ limit, key: text(reply[3]), retryAfter: until(reply[2]) });
  }
  if (state === "BLOCKED") {
    return new BlockedError({ limit, retryAfter: until(reply[2]), reason: text(reply[3]) });
  }
  if (state === "FULL") {
    return new QueueFullError({
      limit,
      depth: number(reply[2]),
      capacity: number(reply[3]),
      retryAfter: until(reply[4]),
    });
  }
  // Too late, or early enough by a clock that was wrong: the server may be another one now. Its reply has set it right.
  return new UnansweredError("Redis answered too late: the call was not accepted");
}

const AGAIN_MS = 250;

/** What was reported as failed may have been added after all: takes it out as soon as the server answers again. */
async function withdraw({ session, report }: Context, ref: BucketRef, id: string): Promise<void> {
  const outcome = outcomes.cancelled(ref.limit.name, "reported as failed while Redis did not answer");
  for (;;) {
    try {
      const reply = await session.run(ref, "cancel", ["", id, 0, outcome], LONG_PATIENCE_MS);
      if (text(reply[0]) !== "TAKEN") return;
      report.warn(new Error(`Call ${id} was reported as failed while Redis did not answer, but it has been sent`));
      return;
    } catch (error) {
      if (!(error instanceof RedisUnavailableError)) return;
      await sleep(AGAIN_MS);
    }
  }
}
