import { InvalidLimitError } from "../errors.js";
import { checkArray, checkInteger, checkKeys, checkNumber, given, isRecord } from "./check.js";
import { type Duration, formatDuration, parseDuration, parseTimer, UNIT_MS } from "./duration.js";

/** When and how often a durable call (`enqueue`) that failed is sent again. Every attempt waits for a slot. */
export interface RetryOptions {
  /**
   * Attempts in all, the first one included: an integer from 1 to 100.
   *
   * @default 3
   */
  readonly attempts?: number;
  /**
   * The wait before the second attempt: a duration up to 24 days.
   *
   * @default "500ms"
   */
  readonly minBackoff?: Duration;
  /**
   * The longest wait between two attempts: a duration up to 24 days, not below `minBackoff`.
   *
   * @default "30s", or `minBackoff` if that is longer
   */
  readonly maxBackoff?: Duration;
  /**
   * By how much each wait is longer than the one before: a number from 1 to 100.
   *
   * @default 2
   */
  readonly factor?: number;
  /**
   * Response statuses that are tried again: integers from 400 to 599. With 429 go refusals under other statuses, where the
   * response says that there were too many calls (GitHub's 403).
   *
   * @default [408, 429, 500, 502, 503, 504]
   */
  readonly statuses?: readonly number[];
  /**
   * Methods that are tried again. The default is the idempotent ones (RFC 9110, 9.2.2), which do no harm when the
   * server got the first attempt after all.
   *
   * @default ["GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"]
   */
  readonly methods?: readonly string[];
  /**
   * How many retries the bucket allows for each first attempt, so that an outage does not multiply the load: a number from
   * 0 to 100. Ten a minute are allowed besides, and up to 100 are saved up. A call that finds none left fails as after its
   * last attempt. Refusals are not charged.
   *
   * @default 0.2
   */
  readonly budget?: number;
}

/** When a durable call whose attempts have all failed comes back. */
export interface RedeliverOptions {
  /**
   * How often it comes back: an integer from 1 to 100.
   *
   * @default 5
   */
  readonly attempts?: number;
  /**
   * The wait before it first comes back; each further one is twice as long, up to a day (or this wait, if that is longer),
   * and up to a tenth longer by chance. A duration from 1 s on. Workers look every third of their `lockDuration`.
   *
   * @default "5m"
   */
  readonly backoff?: Duration;
  /**
   * The age, counted from when it was accepted (or put back by `retryFailed()`), from which on it does not come back.
   *
   * @default "3d"
   */
  readonly maxAge?: Duration;
}

/** {@link RetryOptions} after validation. */
export interface Retry {
  readonly attempts: number;
  readonly minBackoffMs: number;
  readonly maxBackoffMs: number;
  readonly factor: number;
  readonly statuses: readonly number[];
  /** In upper case. */
  readonly methods: readonly string[];
  readonly budget: number;
  /** Whether a refusal leaves the attempts as they are: not so with `retry: false`. */
  readonly afterRefusal: boolean;
}

/** {@link RedeliverOptions} after validation. */
export interface Redeliver {
  readonly attempts: number;
  readonly backoffMs: number;
  readonly maxAgeMs: number;
}

/** RFC 9110, 9.2.2. */
export const IDEMPOTENT_METHODS: readonly string[] = Object.freeze([
  "GET",
  "HEAD",
  "OPTIONS",
  "PUT",
  "DELETE",
  "TRACE",
]);

const RETRY_DEFAULTS: Retry = Object.freeze({
  attempts: 3,
  minBackoffMs: 500,
  maxBackoffMs: 30_000,
  factor: 2,
  statuses: Object.freeze([408, 429, 500, 502, 503, 504]),
  methods: IDEMPOTENT_METHODS,
  budget: 0.2,
  afterRefusal: true,
});

// Written as objects so that the compiler misses none of the options and finds each that is gone.
const RETRY_OPTIONS: Record<keyof RetryOptions, true> = {
  attempts: true,
  minBackoff: true,
  maxBackoff: true,
  factor: true,
  statuses: true,
  methods: true,
  budget: true,
};
const REDELIVER_OPTIONS: Record<keyof RedeliverOptions, true> = { attempts: true, backoff: true, maxAge: true };

/** @throws {InvalidLimitError} for an option that is unknown or wrong. */
export function normalizeRetry(options: false | RetryOptions | undefined, path: string): Retry {
  if (options === undefined) return RETRY_DEFAULTS;
  if (options === false) return Object.freeze({ ...RETRY_DEFAULTS, attempts: 1, afterRefusal: false });
  checkRetryShape(options, path);
  const { attempts, minBackoff, maxBackoff, factor, statuses, methods, budget } = options;
  const minBackoffMs = given(minBackoff, `${path}.minBackoff`, parseTimer) ?? RETRY_DEFAULTS.minBackoffMs;
  const maxBackoffMs =
    given(maxBackoff, `${path}.maxBackoff`, parseTimer) ?? Math.max(RETRY_DEFAULTS.maxBackoffMs, minBackoffMs);
  if (maxBackoffMs < minBackoffMs) {
    const expected = `at least \`minBackoff\`, which is ${formatDuration(minBackoffMs)}`;
    throw new InvalidLimitError(`${path}.maxBackoff`, expected, maxBackoff);
  }
  return Object.freeze({
    attempts: given(attempts, `${path}.attempts`, parseAttempts) ?? RETRY_DEFAULTS.attempts,
    minBackoffMs,
    maxBackoffMs,
    factor: given(factor, `${path}.factor`, parseFactor) ?? RETRY_DEFAULTS.factor,
    statuses: statuses === undefined ? RETRY_DEFAULTS.statuses : checkArray(statuses, `${path}.statuses`, parseStatus),
    methods: methods === undefined ? RETRY_DEFAULTS.methods : checkArray(methods, `${path}.methods`, parseMethod),
    budget: given(budget, `${path}.budget`, parseBudget) ?? RETRY_DEFAULTS.budget,
    afterRefusal: true,
  });
}

function checkRetryShape(options: unknown, path: string): void {
  if (!isRecord(options)) {
    throw new InvalidLimitError(path, "false, or an object such as { attempts: 5 }", options);
  }
  checkKeys(options, path, Object.keys(RETRY_OPTIONS));
}

/** @throws {InvalidLimitError} for an option that is unknown or wrong. */
export function normalizeRedeliver(options: false | RedeliverOptions | undefined, path: string): Redeliver | undefined {
  if (options === undefined || options === false) return undefined;
  if (!isRecord(options)) throw new InvalidLimitError(path, 'false, or an object such as { backoff: "5m" }', options);
  checkKeys(options, path, Object.keys(REDELIVER_OPTIONS));
  const { attempts, backoff, maxAge } = options;
  return Object.freeze({
    attempts: given(attempts, `${path}.attempts`, parseAttempts) ?? 5,
    backoffMs: given(backoff, `${path}.backoff`, parseBackoff) ?? 5 * UNIT_MS.m,
    maxAgeMs: given(maxAge, `${path}.maxAge`, parseDuration) ?? 3 * UNIT_MS.d,
  });
}

const parseBackoff = (value: unknown, option: string): number => parseDuration(value, option, { min: UNIT_MS.s });
const parseAttempts = (value: unknown, option: string): number => checkInteger(value, option, { max: 100 });
const parseFactor = (value: unknown, option: string): number => checkNumber(value, option, { min: 1, max: 100 });
const parseBudget = (value: unknown, option: string): number => checkNumber(value, option, { min: 0, max: 100 });
const parseStatus = (value: unknown, option: string): number => checkInteger(value, option, { min: 400, max: 599 });

function parseMethod(value: unknown, option: string): string {
  // A token of RFC 9110, 5.6.2.
  if (typeof value === "string" && /^[!#$%&'*+.^_`|~\w-]+$/.test(value)) return value.toUpperCase();
  throw new InvalidLimitError(option, 'a method such as "POST"', value);
}
