import { setImmediate } from "node:timers/promises";
import { inOrder } from "../gate/line.js";
import { horizonOf } from "../gate/slot.js";
import type { BucketRef } from "../limits/define.js";
import { notifyDropped } from "../queue/dropped.js";
import { type Taken, take } from "../queue/take.js";
import type { Context } from "../redis/context.js";
import { later, sleep } from "../redis/sleep.js";

/** Most calls that one script takes: more would start late, one behind the other. */
const BATCH = 16;
const AGAIN_MS = 250;

/** What a drain needs of its worker. */
export interface Carrier {
  readonly context: Context;
  readonly token: string;
  readonly closing: AbortSignal;
  /** How many more calls this process can carry now. */
  room(): number;
  /** Starts on its way what was taken; does not wait for it. */
  carry(ref: BucketRef, taken: Taken): void;
  /** The worker has no room: wakes this drain when it has some again. */
  whenRoom(drain: Drain): void;
  /** Nothing waits in this bucket; the drain is no longer needed until it is woken. */
  retire(drain: Drain): void;
}

/**
 * Takes the calls of one bucket as their slots come near, in order. At most one script is under way at a time, which
 * keeps the order; at most one process holds the turn to wait for the next slot, which keeps the others quiet.
 */
export class Drain {
  readonly ref: BucketRef;
  readonly #carrier: Carrier;
  #running: Promise<void> | undefined;
  #again = false;
  #stopTimer = (): void => {};

  constructor(carrier: Carrier, ref: BucketRef) {
    this.#carrier = carrier;
    this.ref = ref;
  }

  /** Looks at the bucket now, or as soon as the look that is under way has ended. */
  wake(): void {
    this.#stopTimer();
    this.#again = true;
    this.#running ??= this.#run().finally(() => {
      this.#running = undefined;
      // Woken between the last look and now.
      if (this.#again && !this.#carrier.closing.aborted) this.wake();
    });
  }

  stop(): void {
    this.#stopTimer();
  }

  /** Ends after the script that is under way, and passes the turn on, if this worker has it. */
  async leave(): Promise<void> {
    this.stop();
    await this.#running;
    const { context, token } = this.#carrier;
    await take(context, this.ref, { horizon: 0, most: 0, token });
  }

  async #run(): Promise<void> {
    while (this.#again && !this.#carrier.closing.aborted) {
      this.#again = false;
      // Woken while it looked, it looks twice; what the first look has planned is no longer of interest.
      this.#stopTimer();
      try {
        await this.#look();
      } catch (error) {
        this.#carrier.context.report.connection(error);
        await sleep(AGAIN_MS, this.#carrier.closing);
        this.#again = true;
      }
    }
  }

  async #look(): Promise<void> {
    const { context, token, closing } = this.#carrier;
    await context.session.whenCalm(closing);
    if (closing.aborted) return;
    const most = Math.min(BATCH, Math.max(0, this.#carrier.room()));
    const horizon = horizonOf(context);
    const { state, again, calls, dropped } = await take(context, this.ref, { horizon, most, token });
    for (const call of calls) this.#carrier.carry(this.ref, call);
    for (const one of dropped) notifyDropped(context, this.ref, one);
    if (most === 0) this.#carrier.whenRoom(this);
    else if (state === "more") {
      // What was taken starts before more is taken, or all of it would be late in turn.
      await setImmediate();
      await inOrder(context, this.ref);
      this.#again = true;
    } else if (state === "wait") this.#wakeAt(again + horizon / 2);
    else if (!this.#again) this.#carrier.retire(this);
  }

  /**
   * @param at in µs of the server's clock. Half the horizon after the next slot came into it: at high rates several
   * calls are then taken at once, and there is still time for each.
   */
  #wakeAt(at: number): void {
    if (this.#carrier.closing.aborted) return;
    const { clock } = this.#carrier.context.session;
    this.#stopTimer = later((at - clock.now()) / 1000, () => this.wake());
  }
}
