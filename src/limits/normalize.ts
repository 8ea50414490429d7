import { InvalidLimitError } from "../errors.js";
import {
  checkArray,
  checkBoolean,
  checkFunction,
  checkInteger,
  checkKeys,
  checkNumber,
  checkOneOf,
  isRecord,
} from "./check.js";
import { formatDuration, parseDuration, UNIT_MS } from "./duration.js";
import type { Limit, LimitOptions, Policy, PolicyOptions, Retry, RetryOptions } from "./options.js";
import { MAX_RATE, parseRate } from "./rate.js";

/** A timer of Node holds 2^31 - 1 ms; a longer one fires at once. */
const MAX_TIMER = { max: 24 * UNIT_MS.d };
const MAX_LATENESS = { min: 0, max: UNIT_MS.m };
/** Half of what a Redis value can hold, so that the body fits with all that is stored beside it. */
const MAX_BODY = { max: 256 * 1024 * 1024 };

const POLICY_DEFAULTS: Omit<Policy, "rate"> = {
  burst: 1,
  rules: Object.freeze([]),
  capacity: 1000,
  overflow: "reject",
  concurrency: undefined,
  latenessMs: 10,
};

const RETRY_DEFAULTS: Retry = Object.freeze({
  attempts: 3,
  minBackoffMs: 500,
  maxBackoffMs: 30_000,
  factor: 2,
  statuses: Object.freeze([408, 429, 500, 502, 503, 504]),
  methods: Object.freeze(["GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"]),
});

// Written as objects so that the compiler misses none of the options and finds each that is gone.
const POLICY_OPTIONS: Record<keyof PolicyOptions, true> = {
  rate: true,
  burst: true,
  rules: true,
  capacity: true,
  overflow: true,
  concurrency: true,
  lateness: true,
};
const LIMIT_OPTIONS: Record<keyof LimitOptions, true> = {
  ...POLICY_OPTIONS,
  maxWait: true,
  timeout: true,
  retry: true,
  key: true,
  headers: true,
  feedback: true,
  learn: true,
  adaptive: true,
  keepResults: true,
  maxRequestBytes: true,
  maxResponseBytes: true,
};
const RETRY_OPTIONS: Record<keyof RetryOptions, true> = {
  attempts: true,
  minBackoff: true,
  maxBackoff: true,
  factor: true,
  statuses: true,
  methods: true,
};

/**
 * Validates the options of one limit and fills in the defaults.
 *
 * @param name the limit's name in normal form.
 * @param path the name as it was declared, with which the options in errors begin.
 * @throws {InvalidLimitError} for an option that is unknown or wrong.
 */
export function normalizeLimit(name: string, path: string, options: LimitOptions): Limit {
  checkKeys(options, path, Object.keys(LIMIT_OPTIONS));
  if (options.key !== undefined) checkFunction(options.key, `${path}.key`, "(request) => string");
  if (options.headers !== undefined) checkFunction(options.headers, `${path}.headers`, "(request) => headers");
  if (options.feedback !== undefined) checkFunction(options.feedback, `${path}.feedback`, "(response) => feedback");
  return Object.freeze({
    name,
    ...POLICY_DEFAULTS,
    ...readPolicy(options, path),
    // Again, because it is the one that must be there.
    rate: parseRate(options.rate, `${path}.rate`),
    maxWaitMs: given(options.maxWait, `${path}.maxWait`, parseDuration),
    timeoutMs: given(options.timeout, `${path}.timeout`, parseTimer) ?? 30_000,
    retry: normalizeRetry(options.retry, `${path}.retry`),
    key: options.key,
    headers: options.headers,
    feedback: options.feedback,
    learn: given(options.learn, `${path}.learn`, checkBoolean) ?? false,
    adaptive: given(options.adaptive, `${path}.adaptive`, checkBoolean) ?? false,
    keepResultsMs: given(options.keepResults, `${path}.keepResults`, parseDuration) ?? UNIT_MS.h,
    maxRequestBytes: given(options.maxRequestBytes, `${path}.maxRequestBytes`, parseBytes) ?? 1_048_576,
    maxResponseBytes: given(options.maxResponseBytes, `${path}.maxResponseBytes`, parseBytes) ?? 10_485_760,
  });
}

/**
 * Validates a change to the policy of a running limit; only what is given comes back.
 *
 * @throws {InvalidLimitError} for an option that is unknown, wrong, or fixed when the limit is defined.
 */
export function normalizePolicy(changes: Partial<PolicyOptions>, path: string): Partial<Policy> {
  checkKeys(changes, path, Object.keys(POLICY_OPTIONS));
  return readPolicy(changes, path);
}

function readPolicy(options: Partial<PolicyOptions>, path: string): Partial<Policy> {
  const { rate, burst, rules, capacity, overflow, concurrency, lateness } = options;
  return {
    ...(rate !== undefined && { rate: parseRate(rate, `${path}.rate`) }),
    ...(burst !== undefined && { burst: checkInteger(burst, `${path}.burst`, { max: MAX_RATE }) }),
    ...(rules !== undefined && { rules: checkArray(rules, `${path}.rules`, parseRate) }),
    ...(capacity !== undefined && { capacity: checkInteger(capacity, `${path}.capacity`) }),
    ...(overflow !== undefined && { overflow: checkOneOf(overflow, `${path}.overflow`, ["reject", "drop-oldest"]) }),
    ...(concurrency !== undefined && { concurrency: checkInteger(concurrency, `${path}.concurrency`) }),
    ...(lateness !== undefined && { latenessMs: parseDuration(lateness, `${path}.lateness`, MAX_LATENESS) }),
  };
}

function normalizeRetry(options: false | RetryOptions | undefined, path: string): Retry {
  if (options === undefined) return RETRY_DEFAULTS;
  if (options === false) return Object.freeze({ ...RETRY_DEFAULTS, attempts: 1 });
  checkRetryShape(options, path);
  const { attempts, minBackoff, maxBackoff, factor, statuses, methods } = options;
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
  });
}

function checkRetryShape(options: unknown, path: string): void {
  if (!isRecord(options)) {
    throw new InvalidLimitError(path, "false, or an object such as { attempts: 5 }", options);
  }
  checkKeys(options, path, Object.keys(RETRY_OPTIONS));
}

/** Reads an option unless it was left out. */
function given<T>(value: unknown, option: string, read: (value: unknown, option: string) => T): T | undefined {
  return value === undefined ? undefined : read(value, option);
}

const parseTimer = (value: unknown, option: string): number => parseDuration(value, option, MAX_TIMER);
const parseBytes = (value: unknown, option: string): number => checkInteger(value, option, MAX_BODY);
const parseAttempts = (value: unknown, option: string): number => checkInteger(value, option, { max: 100 });
const parseFactor = (value: unknown, option: string): number => checkNumber(value, option, { min: 1, max: 100 });
const parseStatus = (value: unknown, option: string): number => checkInteger(value, option, { min: 400, max: 599 });

function parseMethod(value: unknown, option: string): string {
  // A token of RFC 9110, 5.6.2.
  if (typeof value === "string" && /^[!#$%&'*+.^_`|~\w-]+$/.test(value)) return value.toUpperCase();
  throw new InvalidLimitError(option, 'a method such as "POST"', value);
}
