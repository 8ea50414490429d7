import { ClosedError, WaitExceededError } from "../errors.js";
import type { BucketRef } from "../limits/define.js";
import type { Context } from "../redis/context.js";
import { number, text } from "../redis/reply.js";
import { LONG_PATIENCE_MS, PATIENCE_MS } from "../redis/session.js";
import { sleepUntil } from "../redis/sleep.js";

/** A time at which one start is allowed, in µs on the server's clock. */
export interface Slot {
  readonly at: number;
  /** The lateness of the limit, in µs. */
  readonly lateness: number;
  /** How far the schedule of the bucket had moved in all when this slot was reserved, in µs. */
  readonly shifted: number;
}

/** Reads a slot from three fields of a reply. */
export function readSlot(at: unknown, lateness: unknown, shifted: unknown): Slot {
  return { at: number(at), lateness: number(lateness), shifted: number(shifted) };
}

/** A slot that lies further ahead than this is confirmed shortly before it comes: pauses and rates may have changed. */
const CONFIRM_MICROS = 50_000;
const CONFIRM_AHEAD_MICROS = 15_000;

/**
 * The share of `lateness` that this process may use up. The rest is left to what happens between the start here and
 * the arrival at the server: the guarantee is worth most where it is measured there.
 */
const OWN_SHARE = 0.6;

/** How far ahead slots are reserved, in µs: enough to be on time for them, over this connection. */
export function horizonOf({ session }: Context): number {
  return Math.round(Math.min(20_000 + 2 * session.clock.roundTrip, 250_000));
}

interface Call {
  readonly ref: BucketRef;
  readonly id: string;
  /** Latest useful start, in µs on the server's clock. */
  readonly deadline?: number | undefined;
  /** Ends the wait; the slot is given back. */
  readonly signal?: AbortSignal | undefined;
}

/** Reserves a slot for a further attempt. */
export async function nextSlot(context: Context, call: Call, held?: number): Promise<Slot> {
  return reserve(context, call, "next", held);
}

async function reserve(context: Context, call: Call, mode: "next" | "confirm", held?: number): Promise<Slot> {
  const { session } = context;
  const args = ["", call.id, mode, held ?? "", call.deadline ?? ""];
  const reply = await session.run(call.ref, "reserve", args, LONG_PATIENCE_MS);
  if (text(reply[0]) === "EXPIRED") {
    throw new WaitExceededError({ limit: call.ref.limit.name, maxWait: call.ref.limit.maxWaitMs ?? 0 });
  }
  return readSlot(reply[2], reply[3], reply[4]);
}

/** Gives back a slot that will not be used. Losing it only costs its time. */
export function returnSlot({ session }: Context, ref: BucketRef, id: string, at: number): void {
  session.run(ref, "reserve", ["", id, "return", at, ""], PATIENCE_MS).catch(() => {});
}

/**
 * Tells the gate of a start that turned out later than the limit allows, because a connection had to be made first or
 * the process was busy: later starts keep their distance from it.
 *
 * @param startedAt when the request went out, in µs of the server's clock.
 */
export function reportStart({ session }: Context, ref: BucketRef, id: string, slot: Slot, startedAt: number): void {
  const excess = Math.round(startedAt - slot.at - slot.lateness * OWN_SHARE);
  if (slot.lateness === 0 || excess <= 0) return;
  session.run(ref, "reserve", ["", id, "late", slot.at, excess, slot.shifted], PATIENCE_MS).catch(() => {});
}

/**
 * Sleeps until the slot, and returns the slot in which to start now. A slot that is missed by more than the limit allows (the
 * event loop was busy, the grant was slow) is given up and another one reserved: late starts would crowd.
 *
 * @throws the signal's reason when it aborts; the slot is given back.
 */
export async function awaitSlot(context: Context, call: Call, first: Slot): Promise<Slot> {
  const { clock } = context.session;
  const now = (): number => clock.now();
  for (let slot = first; ;) {
    if (slot.at - now() > CONFIRM_MICROS) {
      await sleepUntil(slot.at - CONFIRM_AHEAD_MICROS, now, call.signal);
      throwIfAborted(context, call, slot);
      slot = await reserve(context, call, "confirm", slot.at);
      continue;
    }
    await sleepUntil(slot.at, now, call.signal);
    throwIfAborted(context, call, slot);
    if (slot.lateness === 0 || now() - slot.at <= slot.lateness * OWN_SHARE) return slot;
    slot = await nextSlot(context, call, slot.at);
  }
}

function throwIfAborted(context: Context, { ref, id, signal }: Call, slot: Slot): void {
  if (signal?.aborted !== true) return;
  returnSlot(context, ref, id, slot.at);
  throw signal.reason ?? new ClosedError();
}
