import type { Policy } from "./options.js";
import type { ParsedRate } from "./rate.js";
import type { ParsedClassic } from "./rules.js";

/** The part of a limit that lives in the bucket's hash, flat, in the units of the scripts (µs). */
export type StoredPolicy = Readonly<Record<string, string | number>>;

const micros = (milliseconds: number): number => Math.round(milliseconds * 1000);

const encodeWindow = ({ limit, perMs, counts }: ParsedRate): string =>
  `${limit}/${micros(perMs)}${counts === "cost" ? "c" : ""}`;

const encodeClassic = ({ text, counts }: ParsedClassic): string => `${counts === "cost" ? "$" : ""}${text}`;

/** What the scripts read from the bucket's hash (see `redis/lua/includes/gate.lua`); only what is given. */
export function encodePolicy(policy: Partial<Policy>): StoredPolicy {
  const { rate, burst, rules, capacity, overflow, latenessMs } = policy;
  return {
    ...(rate !== undefined && {
      limit: rate.limit,
      per: micros(rate.perMs),
      weighed: rate.counts === "cost" ? "1" : "0",
    }),
    ...(burst !== undefined && { burst }),
    ...(rules !== undefined && {
      rules: rules.flatMap((rule) => ("text" in rule ? [] : encodeWindow(rule))).join(","),
      classic: rules.flatMap((rule) => ("text" in rule ? encodeClassic(rule) : [])).join(" "),
    }),
    ...(capacity !== undefined && { capacity }),
    ...(overflow !== undefined && { overflow }),
    ...("concurrency" in policy && { concurrency: policy.concurrency ?? 0 }),
    ...(latenessMs !== undefined && { late: micros(latenessMs) }),
  };
}
