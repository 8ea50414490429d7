import fc from "fast-check";
import type { ClassicRule } from "../../dist/limiters/rule.js";

export const T0 = 1_800_000_000_000_000;
const MS = 1000;

/** What was let in: when, in µs, and how much. */
export interface Taken {
  readonly at: number;
  readonly cost: number;
}

/** A rule of small numbers, so that histories meet its bounds. */
export interface Example {
  readonly options: ClassicRule;
  /** What the algorithm promises of what it lets in, sorted by time: undefined, or how it was broken. */
  readonly broken: (taken: readonly Taken[]) => string | undefined;
  /** The largest cost that ever fits. */
  readonly most: number;
  /** The longest wait for the largest cost that fits, in µs. */
  readonly reach: number;
  /** The most entries (of a list or hash) and bytes (of a string) of its state. */
  readonly entries: number;
  readonly bytes: number;
}

const limits = fc.integer({ min: 1, max: 9 });
const periods = fc.constantFrom(7, 100, 1000, 3600, 60_000);

/** Whether more than `most(duration)` was let in between any two calls, both included. */
function tooMuch(taken: readonly Taken[], most: (duration: number) => number): string | undefined {
  for (const [i, first] of taken.entries()) {
    let total = 0;
    for (const last of taken.slice(i)) {
      total += last.cost;
      const allowed = most(last.at - first.at);
      if (total > allowed) return `${total} in ${last.at - first.at} µs, at most ${allowed}`;
    }
  }
  return undefined;
}

/** At most `most` in any window [t, t + length). */
const window =
  (most: number, length: number) =>
  (taken: readonly Taken[]): string | undefined =>
    tooMuch(taken, (duration) => (duration < length ? most : Infinity));

/** At most `most` in any window of the calendar. */
const calendar =
  (most: number, length: number) =>
  (taken: readonly Taken[]): string | undefined => {
    const windows = new Map<number, number>();
    for (const { at, cost } of taken) {
      const number = Math.floor(at / length);
      windows.set(number, (windows.get(number) ?? 0) + cost);
    }
    const full = [...windows.values()].find((inside) => inside > most);
    return full === undefined ? undefined : `${full} in one window, at most ${most}`;
  };

export const examples: Readonly<Record<ClassicRule["algorithm"], fc.Arbitrary<Example>>> = {
  "leaky-bucket": fc
    .record({ limit: limits, per: periods, burst: fc.integer({ min: 1, max: 6 }) })
    .map(({ limit, per, burst }) => ({
      options: { algorithm: "leaky-bucket", rate: { limit, per }, burst },
      broken: (taken) => tooMuch(taken, (duration) => burst + Math.floor((limit * duration) / (per * MS))),
      most: burst,
      reach: Math.ceil((burst * per * MS) / limit),
      entries: 0,
      bytes: 44,
    })),
  "token-bucket": fc
    .record({ max: fc.integer({ min: 1, max: 9 }), per: periods, amount: fc.integer({ min: 1, max: 12 }) })
    .map(({ max, per, amount }) => ({
      options: { algorithm: "token-bucket", max, refillTime: per, refillAmount: amount },
      broken: (taken) =>
        tooMuch(taken, (duration) => max + Math.min(max, amount) * (Math.floor(duration / (per * MS)) + 1)),
      most: max,
      reach: Math.ceil(max / Math.min(max, amount)) * per * MS,
      entries: 0,
      bytes: 44,
    })),
  "fixed-window": fc.record({ limit: limits, per: periods }).map(({ limit, per }) => ({
    options: { algorithm: "fixed-window", limit, per },
    broken: calendar(limit, per * MS),
    most: limit,
    reach: per * MS,
    entries: 0,
    bytes: 33,
  })),
  "sliding-log": fc.array(fc.record({ limit: limits, per: periods }), { minLength: 1, maxLength: 3 }).map((rules) => ({
    options: { algorithm: "sliding-log", rules },
    broken: (taken) => rules.map(({ limit, per }) => window(limit, per * MS)(taken)).find((flaw) => flaw !== undefined),
    most: Math.min(...rules.map(({ limit }) => limit)),
    reach: Math.max(...rules.map(({ per }) => per)) * MS,
    entries: Math.max(...rules.map(({ limit }) => limit)),
    bytes: 0,
  })),
  "sliding-window-counter": fc
    .record({ limit: limits, per: periods, buckets: fc.constantFrom(2, 3, 7, 60) })
    .map(({ limit, per, buckets }) => ({
      options: { algorithm: "sliding-window-counter", limit, per, buckets },
      // A bucket may be a µs longer than the next one.
      broken: window(limit, Math.floor((per * MS * (buckets - 1)) / buckets) - 1),
      most: limit,
      reach: per * MS,
      entries: buckets,
      bytes: 0,
    })),
  "sliding-window": fc.record({ limit: limits, per: periods }).map(({ limit, per }) => ({
    options: { algorithm: "sliding-window", limit, per },
    broken: (taken) => calendar(limit, per * MS)(taken) ?? window(2 * limit, per * MS)(taken),
    most: limit,
    reach: 2 * per * MS,
    entries: 0,
    bytes: 50,
  })),
};
