import { type ClassicRule, encodeRule, normalizeRule } from "../limiters/rule.js";
import { checkArray, checkOneOf, isRecord } from "./check.js";
import { parseRate, type ParsedRate, type Rule } from "./rate.js";

/** A classic rule of a gate, after validation. */
export interface ParsedClassic {
  /** As it was declared. */
  readonly rule: Rule;
  /** As the scripts read it: see `lua/includes/classic.lua`. */
  readonly text: string;
  /** Left out where calls are counted. */
  readonly counts?: "cost";
}

/** @throws {InvalidLimitError} naming the rule and its option, such as `api.example.org.rules[2].limit`. */
export function parseRules(value: unknown, option: string): readonly (ParsedRate | ParsedClassic)[] {
  return Object.freeze(checkArray(value, option, parseRule).flat());
}

const isClassic = (value: unknown): value is Exclude<Rule, string> & ClassicRule =>
  isRecord(value) && "algorithm" in value;

function parseRule(value: unknown, option: string): readonly (ParsedRate | ParsedClassic)[] {
  if (!isClassic(value)) return [parseRate(value, option)];
  const { counts = "calls", ...rule } = value;
  const weighed = checkOneOf(counts, `${option}.counts`, ["calls", "cost"]) === "cost" && { counts: "cost" as const };
  const parsed = normalizeRule(rule, option);
  // Its windows are those of the gate.
  if (rule.algorithm === "sliding-log") {
    const rates = rule.rules ?? [{ limit: rule.limit, per: rule.per }];
    return rates.map((rate) => Object.freeze({ ...parseRate(rate, option), ...weighed }));
  }
  return [Object.freeze({ rule: value, text: encodeRule(parsed), ...weighed })];
}
