import type { BucketRef } from "../limits/define.js";
import { notifyDropped } from "../queue/dropped.js";
import { outcomes } from "../queue/outcome.js";
import type { Context } from "../redis/context.js";
import { list, number, texts } from "../redis/reply.js";
import { LONG_PATIENCE_MS } from "../redis/answer.js";

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
  #sweeping = false;

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
    if (this.#sweeping) return;
    this.#sweeping = true;
    const { session, report } = this.#context;
    try {
      for (const bucket of await session.buckets()) {
        const ref = session.limits.ofBucket(bucket);
        if (this.#stopped) return;
        if (ref !== undefined) await this.#look(ref);
      }
      const commands = await session.commands();
      await commands.zremrangebyscore(session.bucketsKey, "-inf", session.milliseconds() - FORGET_MS);
    } catch (error) {
      report.connection(error);
    } finally {
      this.#sweeping = false;
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
    const [waiting, active] = [number(reply[4]), number(reply[5])];
    if (waiting > 0) this.#wake(ref.bucket);
    if (waiting + active === 0) return;
    const commands = await session.commands();
    await commands.zadd(session.bucketsKey, session.milliseconds(), ref.bucket);
  }
}
