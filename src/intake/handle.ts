import { checkInteger, checkKeys } from "../limits/check.js";
import type { BucketRef } from "../limits/define.js";
import { type Duration, parseDuration } from "../limits/duration.js";
import { normalizePolicy } from "../limits/normalize.js";
import type { Policy, PolicyOptions } from "../limits/options.js";
import { encodePolicy } from "../limits/policy.js";
import { type BucketStats, readStats } from "../observe/stats.js";
import { type BucketUsage, readUsage } from "../observe/usage.js";
import { decodeRequest } from "../queue/call.js";
import { notifyDropped } from "../queue/dropped.js";
import { ticketId } from "../queue/ids.js";
import { outcomes } from "../queue/outcome.js";
import type { Context } from "../redis/context.js";
import { list, number, texts } from "../redis/reply.js";

/** A durable call that failed, as it is kept in BullMQ's failed set. */
export interface FailedCall {
  readonly id: string;
  /** URL and method are empty for a call that a later version has stored. */
  readonly url: string;
  readonly method: string;
  readonly reason: string;
  readonly failedAt: Date;
}

/** One bucket, for every process at once. Durations are bounded by a year. */
export interface LimitHandle {
  /** What the bucket looks like now. */
  stats(): Promise<BucketStats>;
  /**
   * What happened in the last so many seconds, the running one included; 1 to 3600.
   *
   * @throws {InvalidLimitError} when it is no such number.
   */
  usage(seconds: number): Promise<BucketUsage>;
  /**
   * Changes the policy at once for every process, also for calls that already wait. It stays, over what clients and
   * workers declare, until it is changed, {@link LimitHandle.unset}, or `for` has passed.
   *
   * @throws {InvalidLimitError} when an option is wrong.
   */
  set(changes: Partial<PolicyOptions>, options?: { readonly for?: Duration }): Promise<void>;
  /** Returns to the declared policy. */
  unset(): Promise<void>;
  /** Starts nothing for so long; calls are still accepted. Never shortens a longer pause. */
  pause(duration: Duration, reason?: string): Promise<void>;
  resume(): Promise<void>;
  /** Refuses new calls with `ERR_BLOCKED`, and starts nothing, for so long. */
  block(duration: Duration, reason?: string): Promise<void>;
  unblock(): Promise<void>;
  /** Cancels all waiting calls; returns how many. */
  clear(): Promise<number>;
  /** Durable calls that failed, the latest first. At most 1000 are kept per bucket. */
  failed(options?: { readonly limit?: number }): Promise<FailedCall[]>;
  /**
   * Puts failed calls back into the queue, the oldest first, as far as there is room; returns how many. Each begins anew, as
   * if it had come now: with all its attempts and redeliveries, normal priority, and no `maxWait`.
   */
  retryFailed(options?: { readonly limit?: number }): Promise<number>;
}

const MOST = 1000;

export class BucketHandle implements LimitHandle {
  readonly #context: Context;
  readonly #ref: BucketRef;

  constructor(context: Context, ref: BucketRef) {
    this.#context = context;
    this.#ref = ref;
  }

  async stats(): Promise<BucketStats> {
    return readStats(this.#ref, await this.#context.session.run(this.#ref, "stats", [""]));
  }

  async usage(seconds: number): Promise<BucketUsage> {
    checkInteger(seconds, "seconds", { max: 3600 });
    return readUsage(await this.#context.session.run(this.#ref, "usage", ["", seconds]));
  }

  async set(changes: Partial<PolicyOptions>, options: { readonly for?: Duration } = {}): Promise<void> {
    checkKeys(options, "set", ["for"]);
    const policy: Partial<Policy> = normalizePolicy(changes, this.#ref.limit.name);
    const duration = options.for === undefined ? "" : micros(options.for, "for");
    await this.#control("set", duration, JSON.stringify(encodePolicy(policy)));
  }

  async unset(): Promise<void> {
    await this.#control("unset");
  }

  async pause(duration: Duration, reason = "paused by hand"): Promise<void> {
    await this.#control("pause", micros(duration, "pause"), reason);
  }

  async resume(): Promise<void> {
    await this.#control("resume");
  }

  async block(duration: Duration, reason = "blocked by hand"): Promise<void> {
    await this.#control("block", micros(duration, "block"), reason);
  }

  async unblock(): Promise<void> {
    await this.#control("unblock");
  }

  async clear(): Promise<number> {
    const { limit } = this.#ref;
    const outcome = outcomes.cancelled(limit.name, "The call was cleared before it was sent");
    const reply = await this.#control("clear", limit.keepResultsMs, outcome);
    const dropped = list(reply[3]);
    for (const one of dropped) notifyDropped(this.#context, this.#ref, texts(one));
    return dropped.length;
  }

  async failed(options: { readonly limit?: number } = {}): Promise<FailedCall[]> {
    const reply = await this.#context.session.run(this.#ref, "failed", ["", "list", most(options, "failed")]);
    return list(reply[2]).map((call) => {
      const [id, reason, failedAt, data] = texts(call);
      const { url, method } = shown(data ?? "");
      const ticket = ticketId(this.#ref.bucket, id ?? "");
      return { id: ticket, url, method, reason: reason ?? "", failedAt: new Date(Number(failedAt)) };
    });
  }

  async retryFailed(options: { readonly limit?: number } = {}): Promise<number> {
    const reply = await this.#context.session.run(this.#ref, "failed", ["", "retry", most(options, "retryFailed")]);
    return number(reply[2]);
  }

  async #control(operation: string, duration: number | "" = "", detail = ""): Promise<readonly unknown[]> {
    return this.#context.session.run(this.#ref, "control", ["", operation, duration, detail]);
  }
}

/** A call of another format is among those that failed: its `reason` says so, and it must not hide the others. */
function shown(data: string): Pick<FailedCall, "url" | "method"> {
  try {
    return decodeRequest(data);
  } catch {
    return { url: "", method: "" };
  }
}

function most(options: { readonly limit?: number }, method: string): number {
  checkKeys(options, method, ["limit"]);
  return checkInteger(options.limit ?? MOST, "limit");
}

const micros = (duration: Duration, option: string): number => parseDuration(duration, option) * 1000;
