import { type Item, parseDictionary, parseList, Token } from "structured-headers";
import type { Heard, QuotaPolicy, Reading } from "./types.js";
import { bounded, MAX_WINDOW_MS } from "./values.js";
import { readWindows, summarize, type Window } from "./windows.js";

/**
 * `RateLimit` and `RateLimit-Policy` as draft-ietf-httpapi-ratelimit-headers has them: lists of strings with
 * parameters (from -08), a dictionary (-07), or three headers (up to -06). A field that is malformed is ignored.
 */
export function ietf(reading: Reading): Heard | undefined {
  const policies = readPolicies(reading.get("ratelimit-policy") ?? reading.get("ratelimit-limit"));
  const limits = readLimits(reading, policies);
  const windows =
    limits.length > 0
      ? summarize(reading, "RateLimit", limits)
      : readWindows(reading, "RateLimit-Remaining", [{ names: "ratelimit-*" }]);
  return policies.length === 0 ? windows : { source: "RateLimit-Policy", ...windows, policies };
}

function readPolicies(field: string | undefined): QuotaPolicy[] {
  return items(field).flatMap(([value, parameters]) => {
    // Up to draft -07 the item is the quota itself: `100;w=60`.
    const limit = whole(typeof value === "number" ? value : parameters.get("q"));
    if (limit === undefined || limit === 0) return [];
    const seconds = whole(parameters.get("w")) ?? 0;
    const unit = textOf(parameters.get("qu")) ?? "requests";
    return [{ name: textOf(value) ?? `${limit}`, limit, perMs: seconds === 0 ? undefined : seconds * 1000, unit }];
  });
}

function readLimits(reading: Reading, policies: readonly QuotaPolicy[]): Window[] {
  const field = reading.get("ratelimit");
  const named = items(field).map(([value, parameters]) => [textOf(value), parameters.get("r"), parameters.get("t")]);
  // Draft -07: `limit=100, remaining=50, reset=30`.
  const fields = attempt(() => parseDictionary(field ?? ""));
  const dictionary = ["default", fields?.get("remaining")?.[0], fields?.get("reset")?.[0]];
  return [...named, dictionary].flatMap(([name, left, seconds]) => {
    const remaining = whole(left);
    if (typeof name !== "string" || remaining === undefined) return [];
    const unit = policies.find((policy) => policy.name === name)?.unit ?? "requests";
    return [{ name: `RateLimit "${name}"`, unit, remaining, resetAfter: resetOf(reading, whole(seconds)) }];
  });
}

const resetOf = (reading: Reading, seconds: number | undefined): number | undefined =>
  seconds === undefined ? undefined : bounded(reading, `RateLimit: ${seconds} s`, seconds * 1000, MAX_WINDOW_MS);

/** The items of a list; none where it is malformed. */
function items(field: string | undefined): Item[] {
  const list = attempt(() => parseList(field ?? "")) ?? [];
  return list.filter((member): member is Item => !Array.isArray(member[0]));
}

function attempt<T>(parse: () => T): T | undefined {
  try {
    return parse();
  } catch {
    return undefined;
  }
}

const whole = (value: unknown): number | undefined =>
  typeof value === "number" && Number.isSafeInteger(value) && value >= 0 ? value : undefined;

const textOf = (value: unknown): string | undefined =>
  value instanceof Token ? value.toString() : typeof value === "string" ? value : undefined;
