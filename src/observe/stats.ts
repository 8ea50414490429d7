import type { BucketRef } from "../limits/define.js";
import { formatDuration } from "../limits/duration.js";
import type { ParsedRate } from "../limits/rate.js";
import { fields, number, text } from "../redis/reply.js";

/** What one bucket looks like at one moment. */
export interface BucketStats {
  readonly limit: string;
  readonly bucket: string;
  /** Calls accepted whose first attempt has not started; never more than `capacity`. */
  readonly depth: number;
  /** Of these, the calls in the queue; the others have a slot that is about to come. Includes calls that wait again. */
  readonly waiting: number;
  readonly capacity: number;
  /** Durable calls that workers hold: about to start, in flight, or waiting for a further attempt. */
  readonly active: number;
  /** Calls in flight, where the limit has a `concurrency`; otherwise 0. */
  readonly inFlight: number;
  /** The rate in force: so many starts in so many ms. */
  readonly rate: ParsedRate;
  /** The share of that rate at which calls start now, above 0 to 1: below 1 after refusals, where the limit is `adaptive`. */
  readonly share: number;
  /** The windows that the server named, where the limit may `learn`. */
  readonly learned: readonly { readonly limit: number; readonly perMs: number }[];
  /** When the next call may start, as far as it does not wait for others to end (`concurrency`). */
  readonly nextSlotAt: Date;
  /**
   * What that call waits for, if for anything: `"rate"`, `"pause"`, `"block"`, or the one of `rules` (or of what was learned)
   * that is the last to allow it, as `"200/1h"` or `"fixed-window 5000/1h"`; `"concurrency"` where only that holds it back.
   */
  readonly waitsFor: string | undefined;
  /** When a call that came now would start, if nothing changes. */
  readonly expectedAt: Date;
  readonly paused: { readonly until: Date; readonly reason: string } | undefined;
  readonly blocked: { readonly until: Date; readonly reason: string } | undefined;
  /** False when calls wait and no worker has looked at them when it should have. */
  readonly attended: boolean;
  /** Durable calls in the failed set. */
  readonly failed: number;
  /** Durable calls that come back to the queue later, their attempts having failed (`redeliver`). */
  readonly redelivering: number;
}

export function readStats({ limit, bucket }: BucketRef, reply: readonly unknown[]): BucketStats {
  const now = number(reply[1]);
  const gate = fields(reply[10]);
  const read = (name: string): number => Number(gate.get(name) ?? 0);
  const date = (micros: number): Date => new Date(Math.min(micros / 1000, 8.64e15));
  const closed = (until: string, reason: string): BucketStats["paused"] =>
    read(until) > now ? { until: date(read(until)), reason: gate.get(reason) ?? "" } : undefined;
  const waiting = number(reply[3]);
  return {
    limit: limit.name,
    bucket,
    depth: number(reply[2]),
    waiting,
    capacity: read("capacity"),
    active: number(reply[4]),
    inFlight: number(reply[5]),
    rate: { limit: read("limit"), perMs: read("per") / 1000, ...(gate.get("weighed") === "1" && { counts: "cost" }) },
    share: Number(text(reply[11])),
    learned: read("learnedUntil") > now ? windows(gate.get("learned") ?? "") : [],
    nextSlotAt: date(Number(text(reply[6]))),
    waitsFor: reasonOf(text(reply[13]), read("blockedUntil") >= read("pausedUntil") ? "block" : "pause"),
    expectedAt: date(Number(text(reply[7]))),
    paused: closed("pausedUntil", "pauseReason"),
    blocked: closed("blockedUntil", "blockReason"),
    attended: waiting === 0 || number(reply[9]) > 0 || read("turnUntil") > now,
    failed: number(reply[8]),
    redelivering: number(reply[12]),
  };
}

const windows = (stored: string): BucketStats["learned"] =>
  [...stored.matchAll(/(\d+)\/(\d+)/g)].map(([, limit, per]) => ({ limit: Number(limit), perMs: Number(per) / 1000 }));

/** From the text of the scripts: `200/3600000000`, `fixed-window:5000:3600000000`, with a mark where cost is counted. */
function reasonOf(said: string, closed: string): string | undefined {
  if (said === "closed") return closed;
  const [, algorithm, limit, per, rest] = /^\$?(?:([a-z-]+):)?(\d+)[/:](\d+)c?(?::(\d+))?$/.exec(said) ?? [];
  if (limit === undefined) return said === "" ? undefined : said;
  const window = `${limit}/${formatDuration(Number(per) / 1000)}`;
  const suffix = algorithm === "token-bucket" || algorithm === "leaky-bucket" ? ` (${rest})` : "";
  const counts = said.startsWith("$") || said.endsWith("c") ? " of cost" : "";
  return `${algorithm === undefined ? "" : `${algorithm} `}${window}${suffix}${counts}`;
}
