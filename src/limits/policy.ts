import type { Policy } from "./options.js";

/** The part of a limit that lives in the bucket's hash, flat, in the units of the scripts (µs). */
export type StoredPolicy = Readonly<Record<string, string | number>>;

const micros = (milliseconds: number): number => Math.round(milliseconds * 1000);

/** What the scripts read from the bucket's hash (see `redis/lua/includes/gate.lua`); only what is given. */
export function encodePolicy(policy: Partial<Policy>): StoredPolicy {
  const { rate, burst, rules, capacity, overflow, latenessMs } = policy;
  return {
    ...(rate !== undefined && { limit: rate.limit, per: micros(rate.perMs) }),
    ...(burst !== undefined && { burst }),
    ...(rules !== undefined && { rules: rules.map((rule) => `${rule.limit}/${micros(rule.perMs)}`).join(",") }),
    ...(capacity !== undefined && { capacity }),
    ...(overflow !== undefined && { overflow }),
    ...("concurrency" in policy && { concurrency: policy.concurrency ?? 0 }),
    ...(latenessMs !== undefined && { late: micros(latenessMs) }),
  };
}
