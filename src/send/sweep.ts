import type { BucketRef } from "../limits/define.js";
import { notifyDropped } from "../queue/dropped.js";
import { outcomes } from "../queue/outcome.js";
import type { Context } from "../redis/context.js";
import { list, number, texts } from "../redis/reply.js";
import { LONG_PATIENCE_MS } from "../redis/session.js";

/** A bucket that was not used for so long, and is empty, is no longer looked at. */
const FORGET_MS = 3_600_000;

/**
 * Looks at all buckets now and then: puts back the calls of workers that died, drops what has waited too long, and has
 * somebody woken where calls wait unattended. One worker of all does it in each interval.
 */
export class Sweep {
  readonly #context: Context;
  readonly #wake: (bucket: string) => void;
  readonly #intervalMs: number;
  #timer: NodeJS.Timeout | undefined;
  #stopped = false;

  constructor(context: Context, wake: (bucket: string) => void) {
    this.#context = context;
    this.#wake = wake;
    this.#intervalMs = context.keeper.leaseMs / 3;
  }

  /** Sweeps now, whoever else may have done so, and from now on in turn with the others. */
  start(): void {
    if (this.#stopped) return;
    clearInterval(this.#timer);
    this.#timer = setInterval(() => void this.#inTurn(), this.#intervalMs);
    void this.#sweep();
  }

  stop(): void {
    this.#stopped = true;
    clearInterval(this.#timer);
  }

  async #inTurn(): Promise<void> {
    const { session, report } = this.#context;
    try {
      const commands = await session.commands();
      const until = Math.floor(this.#intervalMs * 0.9);
      const mine = await commands.set(`${session.prefix}:sweep`, session.id, "PX", until, "NX");
      if (mine === "OK") await this.#sweep();
    } catch (error) {
      report.connection(error);
    }
  }

  async #sweep(): Promise<void> {
    const { session, report } = this.#context;
    try {
      for (const bucket of await session.buckets()) {
        const ref = session.limits.ofBucket(bucket);
        if (this.#stopped) return;
        if (ref !== undefined) await this.#look(ref);
      }
    } catch (error) {
      report.connection(error);
    }
  }

  async #look(ref: BucketRef): Promise<void> {
    const { session } = this.#context;
    const { limit } = ref;
    const expired = outcomes.expired(limit.name, limit.maxWaitMs ?? 0);
    // A little less than the interval, so that the check is never skipped for having come a moment early.
    const interval = Math.floor(this.#intervalMs * 0.9);
    const args = ["", interval, limit.keepResultsMs, expired];
    const reply = await session.run(ref, "recover", args, LONG_PATIENCE_MS);
    for (const dropped of list(reply[3])) notifyDropped(this.#context, ref, texts(dropped));
    const waiting = number(reply[4]);
    if (waiting > 0) this.#wake(ref.bucket);
    const busy = waiting > 0 || number(reply[5]) > 0;
    await this.#remember(ref.bucket, busy);
  }

  async #remember(bucket: string, busy: boolean): Promise<void> {
    const { session } = this.#context;
    const commands = await session.commands();
    const key = `${session.prefix}:buckets`;
    if (busy) await commands.zadd(key, Date.now(), bucket);
    else await commands.zremrangebyscore(key, "-inf", Date.now() - FORGET_MS);
  }
}
