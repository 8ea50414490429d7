import { InvalidCallError } from "../errors.js";
import { asCall, checkBoolean, isName } from "../limits/check.js";

const MAX_COST = 1_000_000_000;
/** In the year 2223; in µs, and ten years later, still a whole number of a double. */
const MAX_AT = 8e12;

const shown = (value: unknown): string => {
  if (typeof value === "number" || value == null) return String(value);
  return `${typeof value === "object" ? "an" : "a"} ${typeof value}`;
};

/** The name of a key. */
export function checkKey(key: unknown): string {
  if (isName(key)) return key;
  const got = key === "" ? "an empty one" : typeof key === "string" ? "half of a surrogate pair" : shown(key);
  throw new InvalidCallError(`Expected a key that is a non-empty string of well-formed Unicode, got ${got}`);
}

/** Whether a call is strict, by default not. */
export function checkStrict(strict: unknown): boolean {
  return asCall(() => checkBoolean(strict ?? false, "strict"));
}

/** A cost, by default 1. */
export function checkCost(cost: unknown, name = "cost"): number {
  if (cost === undefined) return 1;
  if (typeof cost === "number" && Number.isInteger(cost) && cost >= 0 && cost <= MAX_COST) return cost;
  throw new InvalidCallError(`Expected \`${name}\` to be an integer from 0 to ${MAX_COST}, got ${shown(cost)}`);
}

/** A time as the scripts take it: in µs, or "" for the clock of Redis. */
export function checkAt(at: unknown): number | "" {
  if (at === undefined) return "";
  const ms = at instanceof Date ? at.getTime() : at;
  if (typeof ms === "number" && ms >= 0 && ms <= MAX_AT) return Math.round(ms * 1000);
  throw new InvalidCallError(`Expected \`at\` to be a Date or ms from 0 to ${MAX_AT}, got ${shown(at)}`);
}
