import type { ClassicRule } from "../../dist/limiters/rule.js";
import { parseDuration } from "../../dist/limits/duration.js";
import { parseRate } from "../../dist/limits/rate.js";

/** An algorithm by its definition: slow, exact, and forgetting nothing. Times in µs, in order. */
export interface Model {
  fits(at: number, cost: number): boolean;
  /** Counts a call that fits. */
  count(at: number, cost: number): void;
}

const micros = (duration: unknown): number => parseDuration(duration, "duration") * 1000;

/** Models that look at everything that was let in. */
function ofHistory(fits: (sum: (from: number, to: number) => number, at: number, cost: number) => boolean): Model {
  const taken: { at: number; cost: number }[] = [];
  // From `from`, excluded, up to `to`, included.
  const sum = (from: number, to: number): number =>
    taken.reduce((total, { at, cost }) => (at > from && at <= to ? total + cost : total), 0);
  return { fits: (at, cost) => fits(sum, at, cost), count: (at, cost) => void taken.push({ at, cost }) };
}

function leakyBucket(limit: number, per: number, burst: number): Model {
  // In 1/limit µs.
  let tat = 0n;
  const unit = BigInt(limit);
  const after = (at: number, cost: number): bigint => {
    const now = BigInt(at) * unit;
    return (tat > now ? tat : now) + BigInt(cost) * BigInt(per);
  };
  return {
    fits: (at, cost) => after(at, cost) - BigInt(burst) * BigInt(per) <= BigInt(at) * unit,
    count: (at, cost) => (tat = after(at, cost)),
  };
}

function tokenBucket(max: number, time: number, amount: number): Model {
  let tokens = max;
  let mark = 0;
  const refill = (at: number): { tokens: number; mark: number } => {
    let state = { tokens, mark };
    while (state.tokens < max && state.mark + time <= at) {
      state = { tokens: Math.min(max, state.tokens + amount), mark: state.mark + time };
    }
    return state.tokens === max ? { tokens: max, mark: at } : state;
  };
  return {
    fits: (at, cost) => refill(at).tokens >= cost,
    count: (at, cost) => {
      ({ tokens, mark } = refill(at));
      tokens -= cost;
    },
  };
}

/** The definition of a rule. */
export function modelOf(rule: ClassicRule): Model {
  switch (rule.algorithm) {
    case "leaky-bucket": {
      const { limit, perMs } = parseRate(rule.rate, "rate");
      return leakyBucket(limit, perMs * 1000, rule.burst ?? 1);
    }
    case "token-bucket":
      return tokenBucket(rule.max, micros(rule.refillTime), rule.refillAmount ?? rule.max);
    case "fixed-window": {
      const per = micros(rule.per);
      return ofHistory((sum, at, cost) => sum(at - (at % per) - 1, at) + cost <= rule.limit);
    }
    case "sliding-log": {
      const rules = (rule.rules ?? [{ limit: rule.limit, per: rule.per }]).map((each) => parseRate(each, "rule"));
      return ofHistory((sum, at, cost) =>
        rules.every(({ limit, perMs }) => sum(at - perMs * 1000, at) + cost <= limit),
      );
    }
    case "sliding-window-counter": {
      const { limit, buckets = 60 } = rule;
      const [per, parts] = [BigInt(micros(rule.per)), BigInt(buckets)];
      const bucketOf = (at: number): bigint => (BigInt(at) * parts) / per;
      const startOf = (bucket: bigint): number => Number((bucket * per + parts - 1n) / parts);
      return ofHistory((sum, at, cost) => sum(startOf(bucketOf(at) - parts + 1n) - 1, at) + cost <= limit);
    }
    case "sliding-window": {
      const per = micros(rule.per);
      return ofHistory((sum, at, cost) => {
        const start = at - (at % per);
        const before = BigInt(sum(start - per - 1, start - 1));
        const weighted = Number((before * BigInt(start + per - at)) / BigInt(per));
        return sum(start - 1, at) + weighted + cost <= rule.limit;
      });
    }
  }
}
