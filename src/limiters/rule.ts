import { InvalidLimitError } from "../errors.js";
import { checkArray, checkInteger, checkKeys, checkOneOf, isRecord } from "../limits/check.js";
import { type Duration, parseDuration, UNIT_MS } from "../limits/duration.js";
import { MAX_RATE, parseRate, type ParsedRate, type Rate, type RateObject } from "../limits/rate.js";

/**
 * Leaky bucket as a meter (GCRA, ITU-T I.371): one call every period / limit, and `burst` of them at once after the
 * bucket stood idle. Never more than `burst` + rate × t in any stretch of time t.
 */
export interface LeakyBucketRule {
  readonly algorithm: "leaky-bucket";
  /** The rate at which it leaks: `"10/s"`, or `{ limit, per }`. */
  readonly rate: Rate;
  /**
   * What it holds: calls that may come at once. A positive integer; the whole burst must leak within ten years.
   *
   * @default 1
   */
  readonly burst?: number;
}

/**
 * Token bucket that is refilled in steps: it starts full, and every `refillTime`, counted from the call that found it
 * full, `refillAmount` tokens come in, up to `max`.
 */
export interface TokenBucketRule {
  readonly algorithm: "token-bucket";
  /** Tokens in a full bucket: an integer from 1 to 1,000,000,000. */
  readonly max: number;
  /** Time between two refills. */
  readonly refillTime: Duration;
  /**
   * Tokens in a refill: an integer from 1 to 1,000,000,000.
   *
   * @default `max`
   */
  readonly refillAmount?: number;
}

type WindowNumbers = Omit<RateObject, "counts">;

/**
 * Windows of the calendar: never more than `limit` in one; across the edge of two up to twice as many. They are counted from
 * 1970 (UTC): those of `"1d"` begin at midnight, those of `"7d"` on Thursdays.
 */
export interface FixedWindowRule extends WindowNumbers {
  readonly algorithm: "fixed-window";
}

/** The time of each call is kept: never more than `limit` in any window (t, t + per], for one or several rules. */
export type SlidingLogRule = { readonly algorithm: "sliding-log" } & (
  | (WindowNumbers & { readonly rules?: never })
  | {
      readonly limit?: never;
      readonly per?: never;
      /** Windows that must all hold: `["1/s", "20/m", "800/d"]`. At least one, at most 20. */
      readonly rules: readonly Rate[];
    }
);

/** Counters of equal parts of the window: never more than `limit` in any window shorter by one part. */
export interface SlidingWindowCounterRule extends WindowNumbers {
  readonly algorithm: "sliding-window-counter";
  /**
   * Into how many parts the window is divided: an integer from 2 to 240.
   *
   * @default 60
   */
  readonly buckets?: number;
}

/**
 * The count of this window of the calendar, and that of the last one weighted by the share of it that still counts. Never
 * more than `limit` in a window of the calendar; in any other about `limit` where calls come evenly, at worst twice as many.
 */
export interface SlidingWindowRule extends WindowNumbers {
  readonly algorithm: "sliding-window";
}

/** One of the classic algorithms with its numbers. Limits are 1 to 1,000,000, at most 1,000,000 a second. */
export type ClassicRule =
  | LeakyBucketRule
  | TokenBucketRule
  | FixedWindowRule
  | SlidingLogRule
  | SlidingWindowCounterRule
  | SlidingWindowRule;

/** The name of one of the algorithms. */
export type Algorithm = ClassicRule["algorithm"];

/** A {@link ClassicRule} after validation. */
export interface ParsedRule {
  readonly algorithm: Algorithm;
  /** Its numbers in the order of the scripts, durations in µs. */
  readonly numbers: readonly number[];
}

const OPTIONS: Readonly<Record<Algorithm, readonly string[]>> = {
  "leaky-bucket": ["rate", "burst"],
  "token-bucket": ["max", "refillTime", "refillAmount"],
  "fixed-window": ["limit", "per"],
  "sliding-log": ["limit", "per", "rules"],
  "sliding-window-counter": ["limit", "per", "buckets"],
  "sliding-window": ["limit", "per"],
};
const ALGORITHMS = Object.keys(OPTIONS) as Algorithm[];

/** What takes longer to run off could not be expressed in µs. */
const TEN_YEARS_MS = 3660 * UNIT_MS.d;
const MOST_TOKENS = 1_000_000_000;
const MOST_WINDOWS = 20;

/**
 * Validates a {@link ClassicRule}.
 *
 * @param path the name of the rule, with which the options in errors begin.
 * @param others further options that the caller reads himself.
 * @throws {InvalidLimitError} for an option that is unknown or wrong.
 */
export function normalizeRule(options: ClassicRule, path: string, others: readonly string[] = []): ParsedRule {
  if (!isRecord(options)) {
    throw new InvalidLimitError(
      path,
      'an object such as { algorithm: "fixed-window", limit: 100, per: "1m" }',
      options,
    );
  }
  const algorithm = checkOneOf(options.algorithm, `${path}.algorithm`, ALGORITHMS);
  checkKeys(options, path, ["algorithm", ...OPTIONS[algorithm], ...others]);
  return Object.freeze({ algorithm, numbers: Object.freeze(readNumbers(options, path)) });
}

/** The rule as text, as the scripts read it (`lua/includes/rules.lua`). Rules that mean the same have the same text. */
export function encodeRule({ algorithm, numbers }: ParsedRule): string {
  return [algorithm, ...numbers].join(":");
}

function readNumbers(options: ClassicRule, path: string): number[] {
  switch (options.algorithm) {
    case "leaky-bucket":
      return readLeakyBucket(options, path);
    case "token-bucket":
      return readTokenBucket(options, path);
    case "sliding-log":
      return readSlidingLog(options, path);
    case "sliding-window-counter": {
      const { buckets = 60 } = options;
      return [...readWindow(options, path), checkInteger(buckets, `${path}.buckets`, { min: 2, max: 240 })];
    }
    case "fixed-window":
    case "sliding-window":
      return readWindow(options, path);
  }
}

function readWindow(options: WindowNumbers, path: string): number[] {
  const { limit, perMs } = parseRate({ limit: options.limit, per: options.per }, path);
  return [limit, perMs * 1000];
}

/** What is counted is said of the rule as a whole, where there is a choice. */
function readRate(value: unknown, option: string): ParsedRate {
  const rate = parseRate(value, option);
  if (rate.counts !== undefined) throw new InvalidLimitError(`${option}.counts`, "left out here", rate.counts);
  return rate;
}

function readLeakyBucket({ rate, burst = 1 }: LeakyBucketRule, path: string): number[] {
  const { limit, perMs } = readRate(rate, `${path}.rate`);
  const max = Math.min(MAX_RATE, Math.floor((TEN_YEARS_MS * limit) / perMs));
  return [limit, perMs * 1000, checkInteger(burst, `${path}.burst`, { min: 1, max })];
}

function readTokenBucket(options: TokenBucketRule, path: string): number[] {
  const max = checkInteger(options.max, `${path}.max`, { min: 1, max: MOST_TOKENS });
  const time = parseDuration(options.refillTime, `${path}.refillTime`);
  const amount = checkInteger(options.refillAmount ?? max, `${path}.refillAmount`, { min: 1, max: MOST_TOKENS });
  // More than a full bucket cannot come in: the same rule by another number.
  return [max, time * 1000, Math.min(amount, max)];
}

function readSlidingLog(options: SlidingLogRule, path: string): number[] {
  if (options.rules === undefined) return readWindow(options, path);
  const rules: unknown = options.rules;
  if (options.limit !== undefined || options.per !== undefined) {
    throw new InvalidLimitError(`${path}.rules`, "given in place of `limit` and `per`, not beside them", rules);
  }
  const windows = checkArray(rules, `${path}.rules`, readRate);
  if (windows.length === 0 || windows.length > MOST_WINDOWS) {
    throw new InvalidLimitError(`${path}.rules`, `1 to ${MOST_WINDOWS} rates`, rules);
  }
  const sorted = windows.toSorted((a, b) => a.limit - b.limit || a.perMs - b.perMs);
  return sorted.flatMap(({ limit, perMs }) => [limit, perMs * 1000]);
}
