import { ClosedError, WaitExceededError } from "../errors.js";
import type { BucketRef } from "../limits/define.js";
import { onAbort } from "../redis/abort.js";
import { ServerClock } from "../redis/clock.js";
import type { Context } from "../redis/context.js";
import { dueOf, exchange, isLate, returnSlot, type Slot } from "./slot.js";

/** A slot that lies further ahead than this is confirmed shortly before it comes: pauses and rates may have changed. */
const CONFIRM_MICROS = 50_000;
const CONFIRM_AHEAD_MICROS = 15_000;
/** Longest delay that a Node timer takes. */
const MAX_DELAY_MS = 2 ** 31 - 1;

/** A call that waits for its start. */
export interface Waiting {
  readonly ref: BucketRef;
  readonly id: string;
  /** Latest useful start, in µs of the server's clock. */
  readonly deadline?: number | undefined;
  /** Ends the wait; a slot is given back. */
  readonly signal?: AbortSignal | undefined;
}

interface Waiter {
  readonly deadline: number | undefined;
  start(slot: Slot): void;
  fail(error: unknown): void;
}

interface Due {
  readonly slot: Slot;
  /** In µs of this process's monotonic clock. */
  readonly due: number;
  readonly confirmed: boolean;
}

/**
 * The calls of one bucket that wait for their start in this process, and the slots that this process holds: as many as
 * calls. Calls start in the order in which they came, each in the next slot that comes, so the order is exact however
 * late timers and replies are. A slot that is missed by more than the limit allows (the event loop was busy, a grant was
 * slow) is given up for another one, since late starts would crowd; the calls move up and none is overtaken.
 */
class Line {
  readonly #context: Context;
  readonly #ref: BucketRef;
  readonly #onEmpty: () => void;
  readonly #waiters: Waiter[] = [];
  /** By time. */
  readonly #slots: Due[] = [];
  /** Slots under way, for calls that have left meanwhile. */
  #surplus = 0;
  #timer: NodeJS.Timeout | undefined;
  readonly #exchanges = new Set<Promise<void>>();

  constructor(context: Context, ref: BucketRef, onEmpty: () => void) {
    this.#context = context;
    this.#ref = ref;
    this.#onEmpty = onEmpty;
  }

  join({ deadline, signal }: Waiting, slot: Slot): Promise<Slot> {
    return new Promise((resolve, reject) => {
      let stopListening = (): void => {};
      const end = (settle: () => void): void => {
        stopListening();
        settle();
      };
      const waiter: Waiter = {
        deadline,
        start: (given) => end(() => resolve(given)),
        fail: (error) => end(() => reject(error)),
      };
      const abort = (): void => {
        this.#leave(waiter);
        waiter.fail(signal?.reason ?? new ClosedError());
      };
      this.#waiters.push(waiter);
      this.#hold(slot);
      if (signal?.aborted === true) abort();
      else if (signal !== undefined) stopListening = onAbort(signal, abort);
    });
  }

  /** The newest slot goes with it: only that one is of use to others. */
  #leave(waiter: Waiter): void {
    const at = this.#waiters.indexOf(waiter);
    if (at === -1) return;
    this.#waiters.splice(at, 1);
    const last = this.#slots.pop();
    if (last === undefined) this.#surplus++;
    else returnSlot(this.#context, this.#ref, last.slot);
    this.#schedule();
  }

  #hold(slot: Slot, confirmed = false): void {
    if (this.#surplus > 0) {
      this.#surplus--;
      returnSlot(this.#context, this.#ref, slot);
      return;
    }
    const due = dueOf(this.#context, slot);
    const near = due - ServerClock.local() <= CONFIRM_MICROS;
    const after = this.#slots.findLastIndex((other) => other.due <= due);
    this.#slots.splice(after + 1, 0, { slot, due, confirmed: confirmed || near });
    this.#schedule();
  }

  #schedule(): void {
    clearTimeout(this.#timer);
    const [next] = this.#slots;
    if (next === undefined) {
      if (this.#waiters.length === 0) this.#onEmpty();
      return;
    }
    const wake = next.confirmed ? next.due : next.due - CONFIRM_AHEAD_MICROS;
    const delay = Math.min(Math.max(0, Math.ceil((wake - ServerClock.local()) / 1000)), MAX_DELAY_MS);
    this.#timer = setTimeout(() => this.#advance(), delay);
  }

  #advance(): void {
    const late: Slot[] = [];
    for (;;) {
      const [next] = this.#slots;
      const now = ServerClock.local();
      if (next === undefined || next.due - (next.confirmed ? 0 : CONFIRM_AHEAD_MICROS) > now) break;
      this.#slots.shift();
      if (!next.confirmed) this.#exchange("confirm", [next.slot]);
      else if (isLate(next.slot, next.due)) late.push(next.slot);
      else this.#start(next);
    }
    if (late.length > 0) this.#exchange("next", late);
    this.#schedule();
  }

  #start(next: Due): void {
    const waiter = this.#waiters.shift();
    if (waiter === undefined) returnSlot(this.#context, this.#ref, next.slot);
    else if (waiter.deadline === undefined || next.slot.at <= waiter.deadline) waiter.start(next.slot);
    else {
      const { name, maxWaitMs = 0 } = this.#ref.limit;
      waiter.fail(new WaitExceededError({ limit: name, maxWait: maxWaitMs }));
      this.#slots.unshift(next);
    }
  }

  #exchange(mode: "next" | "confirm", held: readonly Slot[]): void {
    const exchange = this.#reserve(mode, held).finally(() => this.#exchanges.delete(exchange));
    this.#exchanges.add(exchange);
  }

  /** Without a slot there is one call too many: the last one has to try for itself. */
  async #reserve(mode: "next" | "confirm", held: readonly Slot[]): Promise<void> {
    try {
      const slots = await exchange(this.#context, this.#ref, mode, held);
      for (const slot of slots) this.#hold(slot, mode === "confirm" && slot.at === held[0]?.at);
    } catch (error) {
      for (const _slot of held) {
        if (this.#surplus > 0) this.#surplus--;
        else this.#waiters.pop()?.fail(error);
      }
    }
  }

  /** Resolves when no slot is being exchanged for another one. */
  async settled(): Promise<void> {
    while (this.#exchanges.size > 0) await Promise.all(this.#exchanges);
  }
}

const lines = new WeakMap<Context, Map<string, Line>>();

/**
 * Waits for the start of a call for which a slot was reserved, and returns the slot to start in, now.
 *
 * @throws the signal's reason when it aborts; {WaitExceededError} when the start would come after the deadline;
 *   {RedisUnavailableError} when a slot had to be given up and no other could be reserved.
 */
export function awaitSlot(context: Context, call: Waiting, slot: Slot): Promise<Slot> {
  const ofContext = lines.get(context) ?? new Map<string, Line>();
  lines.set(context, ofContext);
  const { bucket } = call.ref;
  const line = ofContext.get(bucket) ?? new Line(context, call.ref, () => ofContext.delete(bucket));
  ofContext.set(bucket, line);
  return line.join(call, slot);
}

/** Resolves when the calls of this bucket that were late here have other slots: more calls would only be behind them. */
export async function inOrder(context: Context, { bucket }: BucketRef): Promise<void> {
  await lines.get(context)?.get(bucket)?.settled();
}
