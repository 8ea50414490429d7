import { WaitExceededError } from "../errors.js";
import type { BucketRef } from "../limits/define.js";
import { ServerClock } from "../redis/clock.js";
import type { Context } from "../redis/context.js";
import { list, number, text } from "../redis/reply.js";
import { LONG_PATIENCE_MS, PATIENCE_MS } from "../redis/answer.js";

/** A time at which one start is allowed. */
export interface Slot {
  /** The call that it was reserved for. In one process, calls start in order, in whichever slot comes next. */
  readonly id: string;
  /** In µs of the server's clock. */
  readonly at: number;
  /** The lateness of the limit, in µs. */
  readonly lateness: number;
  /** How far the schedule of the bucket had moved in all when this slot was reserved, in µs. */
  readonly shifted: number;
  /** What the call was taken to cost. */
  readonly cost: number;
}

/** Reads a slot from three fields of a reply. */
export function readSlot(id: string, cost: number, at: unknown, lateness: unknown, shifted: unknown): Slot {
  return { id, cost, at: number(at), lateness: number(lateness), shifted: number(shifted) };
}

/**
 * The share of `lateness` that this process may use up. The rest is left to what happens between the start here and
 * the arrival at the server: the guarantee is worth most where it is measured there.
 */
const OWN_SHARE = 0.6;

/** How far ahead slots are reserved, in µs: enough to be on time for them, over this connection. */
export function horizonOf({ session }: Context): number {
  return Math.round(Math.min(20_000 + 2 * session.clock.roundTrip, 250_000));
}

/** How far ahead a new slot has to lie, in µs: where the round trip is long, one that comes at once would be missed. */
function leadOf({ session }: Context): number {
  return Math.round(Math.min(session.clock.roundTrip, 250_000));
}

/** When the slot comes, in µs of this process's monotonic clock, which nobody sets. */
export function dueOf({ session }: Context, slot: Slot): number {
  return ServerClock.local() + slot.at - session.clock.now();
}

/** Whether a start now, in a slot that was due at `due`, would come too late. */
export function isLate({ lateness }: Slot, due: number): boolean {
  return lateness > 0 && ServerClock.local() - due > lateness * OWN_SHARE;
}

/**
 * Reserves a slot for a further attempt.
 *
 * @param deadline latest useful start, in µs of the server's clock.
 * @throws {WaitExceededError} when the slot would lie behind the deadline.
 */
export async function reserve(
  context: Context,
  ref: BucketRef,
  { id, cost }: Pick<Slot, "id" | "cost">,
  deadline?: number,
): Promise<Slot> {
  const args = ["", "next", deadline ?? "", leadOf(context), id, "", cost];
  const reply = await context.session.run(ref, "reserve", args, LONG_PATIENCE_MS);
  if (text(reply[0]) === "EXPIRED") {
    throw new WaitExceededError({ limit: ref.limit.name, maxWait: ref.limit.maxWaitMs ?? 0 });
  }
  return readSlots(reply, [{ id, cost }])[0] ?? missing();
}

/**
 * Exchanges slots, in one script. `next`: for other ones. `confirm`: only where a pause, a block or another rate has come
 * over it.
 */
export async function exchange(
  context: Context,
  ref: BucketRef,
  mode: "next" | "confirm",
  held: readonly Slot[],
): Promise<Slot[]> {
  const args = ["", mode, "", leadOf(context), ...held.flatMap(({ id, at, cost }) => [id, at, cost])];
  const reply = await context.session.run(ref, "reserve", args, LONG_PATIENCE_MS);
  return readSlots(reply, held);
}

const readSlots = (reply: readonly unknown[], calls: readonly Pick<Slot, "id" | "cost">[]): Slot[] =>
  calls.map(({ id, cost }, i) => readSlot(id, cost, list(reply[2])[i], reply[3], reply[4]));

function missing(): never {
  throw new TypeError("Expected a slot in the reply of a script");
}

/** Gives back a slot that will not be used. Losing it only costs its time. */
export function returnSlot({ session }: Context, ref: BucketRef, { id, at, cost }: Slot): void {
  session.run(ref, "reserve", ["", "return", "", 0, id, at, cost], PATIENCE_MS).catch(() => {});
}

/** Takes one retry out of the budget of the bucket; false when none is left. */
export async function spendRetry({ session, report }: Context, ref: BucketRef): Promise<boolean> {
  try {
    const reply = await session.run(ref, "budget", ["", ref.limit.retry.budget], LONG_PATIENCE_MS);
    return number(reply[2]) === 1;
  } catch (error) {
    // An outage of Redis is no reason to give up a call: it waits for its slot anyway.
    report.connection(error);
    return true;
  }
}

/** What those calls are counted with now whose cost has been corrected. */
const settled = new WeakMap<Slot, number>();

/** A gate that counts cost stays closed for as long as its last calls weigh: a slip must not close it for ever. */
const MOST_COST = 1_000_000_000;

/** Corrects what a call was taken to cost, when it is known what it did cost. The last word counts. */
export function settleCost({ session, report }: Context, ref: BucketRef, slot: Slot, cost: number): void {
  const actual = Math.min(Math.ceil(cost), MOST_COST);
  const before = settled.get(slot) ?? slot.cost;
  if (actual === before) return;
  settled.set(slot, actual);
  const args = ["", slot.id, slot.at, before, actual];
  session.run(ref, "settle", args, LONG_PATIENCE_MS).catch((error: unknown) => report.connection(error));
}

/** Undici and most servers keep an idle connection for about so long. */
const WARM_MS = 4000;
const MOST_WARM = 10_000;
const warm = new WeakMap<Context, Map<string, number>>();

/** An exchange has ended: the next request of this bucket will find a connection, and a server that is awake. */
export function keepWarm(context: Context, { bucket }: BucketRef): void {
  const times = warm.get(context) ?? new Map<string, number>();
  if (times.size >= MOST_WARM) times.clear();
  warm.set(context, times.set(bucket, performance.now()));
}

/**
 * Tells the gate of a start that turned out later than the limit allows, because a connection had to be made first or
 * the process was busy: later starts keep their distance from it. A first request, which will take longer to arrive than
 * those that follow, leaves all of the lateness to that.
 *
 * @param startedAt when the request went out, in µs of the server's clock.
 */
export function reportStart(context: Context, ref: BucketRef, slot: Slot, startedAt: number): void {
  const isWarm = performance.now() - (warm.get(context)?.get(ref.bucket) ?? -Infinity) < WARM_MS;
  const excess = Math.round(startedAt - slot.at - (isWarm ? slot.lateness * OWN_SHARE : 0));
  if (slot.lateness === 0 || excess <= 0) return;
  const args = ["", slot.id, slot.at, excess, slot.shifted];
  context.session.run(ref, "late", args, PATIENCE_MS).catch(() => {});
}
