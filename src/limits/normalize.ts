import { InvalidLimitError } from "../errors.js";
import { checkBoolean, checkFunction, checkInteger, checkKeys, checkOneOf, given, isRecord } from "./check.js";
import { parseDuration, parseTimer, UNIT_MS } from "./duration.js";
import type { Limit, LimitOptions, Policy, PolicyOptions } from "./options.js";
import { parseQuota } from "./quota.js";
import { MAX_COST, MAX_RATE, parseRate } from "./rate.js";
import { parseRules } from "./rules.js";
import { normalizeRedeliver, normalizeRetry } from "./retry.js";

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
  redeliver: true,
  idempotency: true,
  cost: true,
  admit: true,
  key: true,
  headers: true,
  feedback: true,
  learn: true,
  adaptive: true,
  keepResults: true,
  maxRequestBytes: true,
  maxResponseBytes: true,
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
    redeliver: normalizeRedeliver(options.redeliver, `${path}.redeliver`),
    idempotency: given(options.idempotency, `${path}.idempotency`, checkBoolean) ?? false,
    cost: typeof options.cost === "function" ? options.cost : given(options.cost, `${path}.cost`, parseCost),
    admit: options.admit === undefined ? undefined : parseQuota(options.admit, `${path}.admit`),
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
  for (const [key, value] of isRecord(changes) ? Object.entries(changes) : []) {
    if (key in POLICY_OPTIONS || !(key in LIMIT_OPTIONS)) continue;
    throw new InvalidLimitError(
      `${path}.${key}`,
      "left out, as it is declared with the limit and cannot change",
      value,
    );
  }
  checkKeys(changes, path, Object.keys(POLICY_OPTIONS));
  return readPolicy(changes, path);
}

function readPolicy(options: Partial<PolicyOptions>, path: string): Partial<Policy> {
  const { rate, burst, rules, capacity, overflow, concurrency, lateness } = options;
  return {
    ...(rate !== undefined && { rate: parseRate(rate, `${path}.rate`) }),
    ...(burst !== undefined && { burst: checkInteger(burst, `${path}.burst`, { max: MAX_RATE }) }),
    ...(rules !== undefined && { rules: parseRules(rules, `${path}.rules`) }),
    ...(capacity !== undefined && { capacity: checkInteger(capacity, `${path}.capacity`) }),
    ...(overflow !== undefined && { overflow: checkOneOf(overflow, `${path}.overflow`, ["reject", "drop-oldest"]) }),
    ...(concurrency !== undefined && { concurrency: parseConcurrency(concurrency, `${path}.concurrency`) }),
    ...(lateness !== undefined && { latenessMs: parseDuration(lateness, `${path}.lateness`, MAX_LATENESS) }),
  };
}

function parseConcurrency(value: unknown, option: string): number | undefined {
  if (value === Number.POSITIVE_INFINITY) return undefined;
  if (Number.isSafeInteger(value)) return checkInteger(value, option);
  throw new InvalidLimitError(option, "a positive integer or Infinity", value);
}

const parseBytes = (value: unknown, option: string): number => checkInteger(value, option, MAX_BODY);
const parseCost = (value: unknown, option: string): number => checkInteger(value, option, { max: MAX_COST });
