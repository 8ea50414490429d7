import { InvalidLimitError } from "../errors.js";
import { type ClassicRule, encodeRule, normalizeRule, type TokenBucketRule } from "../limiters/rule.js";
import { checkBoolean, checkFunction, checkOneOf, isRecord } from "./check.js";
import type { LimitRequest } from "./options.js";

/** How much each producer may bring into a shared queue: one of the classic algorithms. */
export type Quota =
  | (QuotaOptions & Exclude<ClassicRule, TokenBucketRule> & { readonly strict?: false })
  | (QuotaOptions &
      TokenBucketRule & {
        /**
         * A call that is refused, or takes the last token, puts off the next refill by a whole `refillTime`.
         *
         * @default false
         */
        readonly strict?: boolean;
      });

interface QuotaOptions {
  /**
   * Whose quota a request counts against: it returns a non-empty string, else the call fails with `ERR_INVALID_CALL`. Becomes
   * part of a key in Redis: return an id, not a secret. `run` names it with `producer`.
   *
   * @default one quota for all
   */
  readonly key?: (request: LimitRequest) => string;
  /**
   * What is counted: `"calls"`, or what they weigh (`cost`).
   *
   * @default "calls"
   */
  readonly counts?: "calls" | "cost";
  /**
   * Whether a refused call counts like any other; of a token bucket, it takes the tokens that are there.
   *
   * @default false
   */
  readonly countRefused?: boolean;
}

/** {@link Quota} after validation. */
export interface ParsedQuota {
  /** As it was declared. */
  readonly quota: Quota;
  /** As the scripts read it: see `lua/includes/quota.lua`. */
  readonly text: string;
  readonly key: Quota["key"];
}

/** @throws {InvalidLimitError} for an option that is unknown or wrong. */
export function parseQuota(value: Quota, option: string): ParsedQuota {
  if (!isRecord(value)) {
    throw new InvalidLimitError(
      option,
      'an object such as { algorithm: "fixed-window", limit: 100, per: "1m" }',
      value,
    );
  }
  const { key, counts = "calls", strict = false, countRefused = false, ...rule } = value;
  if (key !== undefined) checkFunction(key, `${option}.key`, "(request) => string");
  const marks = [
    checkOneOf(counts, `${option}.counts`, ["calls", "cost"]) === "cost" && "$",
    checkBoolean(strict, `${option}.strict`) && "!",
    checkBoolean(countRefused, `${option}.countRefused`) && "+",
  ];
  const encoded = encodeRule(normalizeRule(rule, option));
  const algorithm: string = rule.algorithm;
  if (strict && algorithm !== "token-bucket") {
    throw new InvalidLimitError(`${option}.strict`, "left out, but with a token bucket", strict);
  }
  return Object.freeze({ quota: value, text: marks.filter(Boolean).join("") + encoded, key });
}
