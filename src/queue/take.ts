import { readSlot, type Slot } from "../gate/slot.js";
import type { BucketRef } from "../limits/define.js";
import type { Context } from "../redis/context.js";
import { fields, list, number, text, texts } from "../redis/reply.js";
import { LONG_PATIENCE_MS, PATIENCE_MS } from "../redis/answer.js";
import { outcomes } from "./outcome.js";

/** A call that a worker has taken, with the slot that was reserved for it. */
export type Taken =
  | {
      readonly kind: "permit";
      readonly id: string;
      readonly slot: Slot;
      readonly address: string;
      readonly counted: boolean;
    }
  | { readonly kind: "request"; readonly id: string; readonly slot: Slot; readonly job: ReadonlyMap<string, string> };

export interface Take {
  /** `more`: ask again · `wait`: until `again` · `empty`, `full` (concurrency): until woken. */
  readonly state: string;
  /** In µs of the server's clock. */
  readonly again: number;
  readonly calls: readonly Taken[];
  /** See {@link notifyDropped}. */
  readonly dropped: readonly (readonly string[])[];
}

export interface TakeOptions {
  /** How far ahead a slot may lie, in µs. */
  readonly horizon: number;
  /** Most calls to take; 0 passes the turn to another worker. */
  readonly most: number;
  readonly token: string;
}

/** What take.lua is told; its time is that of the server. */
export function takeArgs(
  { limit }: BucketRef,
  given: TakeOptions & { readonly address: string; readonly leaseMs: number; readonly latest: number | "" },
): (string | number)[] {
  const { address, horizon, most, token, leaseMs, latest } = given;
  const expired = outcomes.expired(limit.name, limit.maxWaitMs ?? 0);
  return ["", address, horizon, most, token, leaseMs, limit.keepResultsMs, expired, latest];
}

/** Takes the oldest calls of a bucket whose slots are near. */
export async function take(context: Context, ref: BucketRef, options: TakeOptions): Promise<Take> {
  const { session, keeper } = context;
  const latest = Math.round(session.clock.now() + PATIENCE_MS * 1000);
  const args = takeArgs(ref, { ...options, latest, address: session.address, leaseMs: keeper.leaseMs });
  const reply = await session.run(ref, "take", args, LONG_PATIENCE_MS);
  if (text(reply[0]) === "LATE") {
    session.holdBack();
    return { state: "more", again: 0, calls: [], dropped: [] };
  }
  const [state, , again, calls, dropped, lateness, shifted, concurrency] = reply;
  const read = (call: unknown): Taken => {
    const [id, at, cost, kind, rest] = list(call);
    const slot = readSlot(text(id), number(cost), at, lateness, shifted);
    if (text(kind) === "request") return { kind: "request", id: text(id), slot, job: fields(rest) };
    return { kind: "permit", id: text(id), slot, address: text(rest), counted: number(concurrency) > 0 };
  };
  return {
    state: text(state),
    again: number(again),
    calls: list(calls).map(read),
    dropped: list(dropped).map(texts),
  };
}
