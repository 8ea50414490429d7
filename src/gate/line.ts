import { ClosedError, WaitExceededError } from "../errors.js";
import type { BucketRef } from "../limits/define.js";
import { PERMIT_MAX_WAIT_MS } from "../limits/options.js";
import { onAbort } from "../redis/abort.js";
import { ServerClock } from "../redis/clock.js";
import type { Context } from "../redis/context.js";
import { dueOf, exchange, isLate, returnSlot, type Slot } from "./slot.js";

/** A slot that lies further ahead than this is confirmed shortly before it comes: pauses and rates may have changed. */
const CONFIRM_MICROS = 50_000;
const CONFIRM_AHEAD_MICROS = 15_000;
/** And this much earlier at most, where the round trip is long: slots this near are never recalled (see gate.lua). */
const CONFIRM_TRIP_MICROS = 60_000;
/** So far ahead, a slot is worth one more look. */
const FAR_MICROS = 1_000_000;
/** Longest delay that a Node timer takes. */
const MAX_DELAY_MS = 2 ** 31 - 1;

/** A call that waits for its start. */
export interface Waiting {
  readonly ref: BucketRef;
  readonly id: string;
  /** Latest useful start, in µs of the server's clock. */
  readonly deadline?: number | undefined;
  /** The wait that ends there, for the error. */
  readonly maxWaitMs?: number | undefined;
  /** Ends the wait; a slot is given back. */
  readonly signal?: AbortSignal | undefined;
}

interface Waiter {
  readonly deadline: number | undefined;
  readonly maxWaitMs: number | undefined;
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
  /** How many slots are being confirmed or replaced. */
  #underWay = 0;
  /** How often the gate was changed. */
  #changes = 0;
  #timer: NodeJS.Timeout | undefined;
  readonly #exchanges = new Set<Promise<void>>();

  constructor(context: Context, ref: BucketRef, onEmpty: () => void) {
    this.#context = context;
    this.#ref = ref;
    this.#onEmpty = onEmpty;
  }

  join({ deadline, maxWaitMs, signal }: Waiting, slot: Slot): Promise<Slot> {
    return new Promise((resolve, reject) => {
      let stopListening = (): void => {};
      const end = (settle: () => void): void => {
        stopListening();
        settle();
      };
      const waiter: Waiter = {
        deadline,
        maxWaitMs,
        start: (given) => end(() => resolve(given)),
        fail: (error) => end(() => reject(error)),
      };
      const abort = (): void => {
        this.#leave(waiter);
        waiter.fail(signal?.reason ?? new ClosedError());
      };
      if (signal?.aborted === true) {
        returnSlot(this.#context, this.#ref, slot);
        abort();
        // This line may have been made for this call.
        this.#schedule();
        return;
      }
      if (signal !== undefined) stopListening = onAbort(signal, abort);
      this.#waiters.push(waiter);
      this.#hold([slot]);
      // The gate may have been opened while the slot was on its way here.
      this.#recheck(this.#slots.filter((held) => held.slot === slot && held.due - ServerClock.local() > FAR_MICROS));
    });
  }

  #leave(waiter: Waiter): void {
    const at = this.#waiters.indexOf(waiter);
    if (at === -1) return;
    this.#waiters.splice(at, 1);
    this.#schedule();
  }

  /** @param standing the slot that is confirmed by now, if any. */
  #hold(slots: readonly Slot[], standing?: Slot): void {
    for (const slot of slots) {
      const due = dueOf(this.#context, slot);
      const confirmed = slot.at === standing?.at || due - ServerClock.local() <= CONFIRM_MICROS;
      const after = this.#slots.findLastIndex((other) => other.due <= due);
      this.#slots.splice(after + 1, 0, { slot, due, confirmed });
    }
    const [next] = this.#slots;
    // A slot that is now, of a call that found nothing waiting, needs no timer, which would take a millisecond.
    if (next?.confirmed === true && next.due <= ServerClock.local()) this.#advance();
    else this.#schedule();
  }

  /** No more slots than calls: the newest goes back, since only that one is of use to others. */
  #trim(): void {
    for (const { slot } of this.#slots.splice(this.#waiters.length).toReversed()) {
      returnSlot(this.#context, this.#ref, slot);
    }
  }

  #schedule(): void {
    clearTimeout(this.#timer);
    this.#trim();
    if (this.#waiters.length + this.#slots.length + this.#underWay === 0) {
      this.#onEmpty();
      return;
    }
    const wake = this.#wakeAt();
    if (wake === Infinity) return;
    const delay = Math.min(Math.max(0, Math.ceil((wake - ServerClock.local()) / 1000)), MAX_DELAY_MS);
    this.#timer = setTimeout(() => this.#advance(), delay);
  }

  /** In µs of this process's monotonic clock; Infinity when there is nothing to do before another slot arrives. */
  #wakeAt(): number {
    const [next] = this.#slots;
    const start = next?.confirmed === true ? next.due : Infinity;
    const unconfirmed = this.#slots.find(({ confirmed }) => !confirmed)?.due ?? Infinity;
    const wake = Math.min(start, unconfirmed - this.#confirmAhead());
    if (start !== Infinity) return wake;
    // A pause, or an outage of Redis, may last longer than calls can wait.
    const { clock } = this.#context.session;
    const deadline = this.#waiters.reduce((least, waiter) => Math.min(least, waiter.deadline ?? Infinity), Infinity);
    return Math.min(wake, ServerClock.local() + deadline - clock.now());
  }

  #confirmAhead(): number {
    return CONFIRM_AHEAD_MICROS + Math.min(this.#context.session.clock.roundTrip, CONFIRM_TRIP_MICROS);
  }

  /** The gate was opened, or its rate changed: slots that are still far ahead may come sooner now. */
  look(): void {
    this.#changes++;
    this.#recheck(this.#slots.filter(({ confirmed }) => !confirmed));
  }

  #recheck(held: readonly Due[]): void {
    if (held.length === 0) return;
    for (const one of held) this.#slots.splice(this.#slots.indexOf(one), 1);
    this.#exchange(
      "confirm",
      held.map(({ slot }) => slot),
    );
    this.#schedule();
  }

  #advance(): void {
    const [now, ahead] = [ServerClock.local(), this.#confirmAhead()];
    const isUp = ({ due, confirmed }: Due): boolean => due - (confirmed ? 0 : ahead) <= now;
    const late: Slot[] = [];
    for (const held of this.#slots.filter(isUp)) {
      this.#slots.splice(this.#slots.indexOf(held), 1);
      if (!held.confirmed) this.#exchange("confirm", [held.slot], held.slot);
      else if (isLate(held.slot, held.due)) late.push(held.slot);
      else this.#start(held.slot);
    }
    if (late.length > 0) this.#exchange("next", late);
    this.#expire();
    this.#schedule();
  }

  #start(slot: Slot): void {
    for (let waiter = this.#waiters.shift(); waiter !== undefined; waiter = this.#waiters.shift()) {
      if (waiter.deadline === undefined || slot.at <= waiter.deadline) {
        waiter.start(slot);
        return;
      }
      this.#refuse(waiter);
    }
    returnSlot(this.#context, this.#ref, slot);
  }

  /** Whatever slot still comes would come too late for these. */
  #expire(): void {
    const now = this.#context.session.clock.now();
    for (const waiter of this.#waiters.filter(({ deadline = Infinity }) => deadline <= now)) {
      this.#waiters.splice(this.#waiters.indexOf(waiter), 1);
      this.#refuse(waiter);
    }
  }

  #refuse(waiter: Waiter): void {
    const { name, maxWaitMs = PERMIT_MAX_WAIT_MS } = this.#ref.limit;
    waiter.fail(new WaitExceededError({ limit: name, maxWait: waiter.maxWaitMs ?? maxWaitMs }));
  }

  /** @param standing the slot that is confirmed when it comes back, if any. */
  #exchange(mode: "next" | "confirm", held: readonly Slot[], standing?: Slot): void {
    this.#underWay += held.length;
    const exchanged = this.#reserve(mode, held, standing).finally(() => this.#exchanges.delete(exchanged));
    this.#exchanges.add(exchanged);
  }

  /** Without slots there may be too many calls: the last ones have to try for themselves. */
  async #reserve(mode: "next" | "confirm", held: readonly Slot[], standing?: Slot): Promise<void> {
    const changes = this.#changes;
    try {
      const arrived = (): void => void (this.#underWay -= held.length);
      const slots = await exchange(this.#context, this.#ref, mode, held).finally(arrived);
      this.#hold(slots, standing);
      if (changes !== this.#changes)
        this.#recheck(this.#slots.filter((one) => !one.confirmed && slots.includes(one.slot)));
    } catch (error) {
      while (this.#waiters.length > this.#slots.length + this.#underWay) this.#waiters.pop()?.fail(error);
      this.#schedule();
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

/** The gate of this bucket, or of any, was changed: calls that wait for slots far ahead may have nearer ones now. */
export function lookAgain(context: Context, bucket?: string): void {
  const ofContext = lines.get(context);
  if (bucket !== undefined) ofContext?.get(bucket)?.look();
  else for (const line of ofContext?.values() ?? []) line.look();
}
