import { InvalidLimitError } from "../errors.js";
import { checkInteger, checkKeys, checkOneOf, isRecord } from "./check.js";
import type { ClassicRule } from "../limiters/rule.js";
import { type Duration, type DurationText, type DurationUnit, parseDuration, UNIT_MS } from "./duration.js";

/**
 * So many starts in a period: `"10/s"`, `"600/m"`, `"800/d"`, over several units `"5/10s"`, `"100/15m"`, `"1/250ms"`,
 * or `{ limit: 5, per: "10s" }`. 1 to 1,000,000 starts, a period of 1 ms to 366 days, at most 1,000,000 a second.
 */
export type Rate = `${number}/${DurationUnit}` | `${number}/${DurationText}` | RateObject;

/** A {@link Rate} in two parts, for numbers that are computed. */
export interface RateObject {
  /** Starts in one period. */
  readonly limit: number;
  /** The period. */
  readonly per: Duration;
  /**
   * What is counted: `"calls"`, or what they weigh (`cost`), for limits on points or tokens.
   *
   * @default "calls"
   */
  readonly counts?: "calls" | "cost";
}

/**
 * A further rule that must hold beside the rate of a limit: a strict window, or one of the classic algorithms, which counts
 * a call at its slot.
 */
export type Rule = Rate | (ClassicRule & { readonly counts?: "calls" | "cost" });

/** A {@link Rate} after validation. */
export interface ParsedRate {
  /** Starts in one period: an integer from 1 to 1,000,000. */
  readonly limit: number;
  /** The period in whole ms. */
  readonly perMs: number;
  /** Left out where calls are counted. */
  readonly counts?: "cost";
}

/** The most starts that a rate may name, in one period and in one second. */
export const MAX_RATE = 1_000_000;

/** The most that one call may weigh. */
export const MAX_COST = 1_000_000;

const EXPECTED = 'a rate such as "10/s", "600/m", "5/10s", or { limit: 5, per: "10s" }';

/**
 * Validates a {@link Rate}.
 *
 * @throws {InvalidLimitError} naming `option`, or the part of it (`option.limit`, `option.per`).
 */
export function parseRate(value: unknown, option: string): ParsedRate {
  const rate = typeof value === "string" ? fromText(value, option) : fromObject(value, option);
  if (rate.limit / rate.perMs > MAX_RATE / 1000) {
    throw new InvalidLimitError(option, `a rate of at most ${MAX_RATE} a second`, value);
  }
  return Object.freeze(rate);
}

function fromText(text: string, option: string): ParsedRate {
  const [, count, per = ""] = /^(\d+)\/(.+)$/.exec(text) ?? [];
  const limit = Number(count);
  try {
    const perMs = parseDuration(Object.hasOwn(UNIT_MS, per) ? `1${per}` : per, option);
    if (limit >= 1 && limit <= MAX_RATE) return { limit, perMs };
  } catch {
    // It was written as a rate: the error below says so, and not that a part of it is no duration.
  }
  throw new InvalidLimitError(option, `${EXPECTED}, with 1 to ${MAX_RATE} starts in 1ms to 366d`, text);
}

function fromObject(value: unknown, option: string): ParsedRate {
  if (!isRecord(value)) throw new InvalidLimitError(option, EXPECTED, value);
  checkKeys(value, option, ["limit", "per", "counts"]);
  const counts = checkOneOf(value["counts"] ?? "calls", `${option}.counts`, ["calls", "cost"]);
  return {
    ...(counts === "cost" && { counts }),
    limit: checkInteger(value["limit"], `${option}.limit`, { max: MAX_RATE }),
    perMs: parseDuration(value["per"], `${option}.per`),
  };
}
