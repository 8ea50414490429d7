import type { Limiter, LimiterResult, StrictTakeOptions } from "spillway/limiters";
import { describe, expect, test } from "vitest";
import { uniquePrefix } from "../helpers/redis.js";
import { type Corrections, expected, limiterOf, recorded, type Step } from "./recorded.js";

describe("leaky-bucket", () => {
  /** key, burst beside the first, calls, period in s, cost */
  type Throttle = readonly [string, number, number, number, number?];
  async function throttle(step: Step, prefix: string): Promise<LimiterResult> {
    const [key, burst, limit, periodS, cost = 1] = step.args as Throttle;
    const rate = { limit, per: periodS * 1000 };
    return limiterOf({ algorithm: "leaky-bucket", rate, burst: burst + 1 }, prefix).take(key, { cost, at: step.atMs });
  }
  const limitOf = (step: Step): number => Number(step.args[1]) + 1;
  const wait = ({ retryAfter }: LimiterResult): number =>
    retryAfter === 0 || retryAfter === Infinity ? -1 : retryAfter;

  // Limited, and yet with nothing to wait for.
  const ofCell: Corrections = { "fractional-emission-interval": { 4: [1, 3, 0, 1, 1] } };
  const grammar = { errors: "the errors of another grammar" };
  test.each(recorded("gcra-redis-cell", grammar))("redis-cell: $name", async ({ name, steps }) => {
    const prefix = uniquePrefix();
    const seconds = (ms: number): number => (ms < 0 ? ms : Math.ceil(ms / 1000));
    for (const [index, step] of steps.entries()) {
      if (step.op !== "throttle") continue;
      const result = await throttle(step, prefix);
      const reply = [Number(!result.allowed), limitOf(step), result.remaining, seconds(wait(result))];
      reply.push(seconds(result.resetAfter));
      expect(reply, `step ${index}`).toEqual(expected(ofCell, name, index, step));
    }
  });

  test.each(recorded("gcra-throttled"))("throttled: $name", async ({ steps }) => {
    const prefix = uniquePrefix();
    for (const [index, step] of steps.entries()) {
      const result = await throttle(step, prefix);
      const was = step.expect as { limited: boolean; remaining: number; retryAfterMs: number; resetAfterMs: number };
      expect([!result.allowed, result.remaining, wait(result), result.resetAfter], `step ${index}`).toEqual([
        was.limited,
        was.remaining,
        Math.ceil(was.retryAfterMs),
        Math.ceil(was.resetAfterMs),
      ]);
    }
  });

  // A clock that goes back has not passed any time.
  const rejected = { rejected: "rejected" };
  const ofMeter: Corrections = { "clock-backwards-counts-as-elapsed": { 1: rejected, 4: rejected } };
  const unfitMeter = {
    uncommit: "a limiter takes nothing back; its scripts do, see rules.test.ts",
    "fraction-truncated-to-milli-requests": "its rounding to thousandths of a request, which lets in too much",
  };
  type Meter = { ratePerS: number; burst: number };
  test.each(recorded<Meter>("leaky-meter-delay-openresty", unfitMeter))("openresty: $name", async (sequence) => {
    const { ratePerS, burst } = sequence.params;
    const limiter = limiterOf({ algorithm: "leaky-bucket", rate: { limit: ratePerS, per: "1s" }, burst: burst + 1 });
    for (const [index, step] of sequence.steps.entries()) {
      const { allowed, resetAfter } = await limiter.take(String(step.args[0]), { at: step.atMs });
      const was = expected(ofMeter, sequence.name, index, step) as { rejected: string } | { delayMs: number };
      const delay = allowed ? { delayMs: resetAfter - 1000 / ratePerS } : rejected;
      expect(delay, `step ${index}`).toEqual("delayMs" in was ? { delayMs: was.delayMs } : was);
    }
  });

  // qps is calls per second, not seconds per call.
  const ofQps: Corrections = {
    "qps-2-is-one-per-two-seconds": { 3: true, 4: true, 5: true, 6: false },
    "qps-max-1000000": { 3: true },
  };
  const unfitQps = {
    "not-configured-allows-everything": "a limiter has a rule",
    "first-call-at-minus-one-sentinel": "before 1970",
    "change-qps-applies-at-once": "from its 5 s a call to 1 s a call",
  };
  test.each(recorded<{ qps: number }>("qps-limiter", unfitQps))("qps: $name", async ({ name, params, steps }) => {
    const limiter = limiterOf({ algorithm: "leaky-bucket", rate: { limit: params.qps, per: "1s" } });
    for (const [index, step] of steps.entries()) {
      if (step.op !== "allow") continue;
      const { allowed } = await limiter.take("k", { at: step.atMs });
      expect(allowed, `step ${index}`).toBe(expected(ofQps, name, index, step));
    }
  });
});

describe("token-bucket", () => {
  interface Command {
    readonly bucket: Limiter<StrictTakeOptions>;
    readonly key: string;
    readonly reduces: boolean;
    readonly take: StrictTakeOptions & { readonly cost: number; readonly at: number };
  }
  /** RL.[P](REDUCE|GET) key max refillTime [REFILL n] [TAKE n] [AT t] [STRICT] */
  function read({ op, args, atMs }: Step, prefix: string, drain: boolean): Command {
    const [, inMs, verb] = /^RL\.(P?)(REDUCE|GET)$/i.exec(op) ?? [];
    if (verb === undefined) throw new Error(`Expected RL.REDUCE or RL.GET, got ${op}`);
    const unit = inMs === "" ? 1000 : 1;
    const [key, max, time, ...rest] = args.map(String);
    const words = rest.map((word) => word.toUpperCase());
    const option = (word: string): number | undefined =>
      words.includes(word) ? Number(words[words.lastIndexOf(word) + 1]) : undefined;
    const refillAmount = option("REFILL");
    const at = option("AT");
    const options = { algorithm: "token-bucket", max: Number(max), refillTime: Number(time) * unit, drain } as const;
    return {
      bucket: limiterOf({ ...options, ...(refillAmount !== undefined && { refillAmount }) }, prefix),
      key: key ?? "",
      reduces: verb.toUpperCase() === "REDUCE",
      take: { cost: option("TAKE") ?? 1, at: at === undefined ? atMs : at * unit, strict: words.includes("STRICT") },
    };
  }

  const ofSmyte: Corrections = {
    // An older time does not rewind the refill.
    "clock-backwards-strict-moves-mark-back": { 4: 0 },
    "int64-overflow-on-huge-jump": { 1: 10 },
    // Nobody remembers a full bucket: its steps count from the call that found it full.
    "no-compaction-keeps-phase": { 3: 0 },
    // A replay may be slower than what it replays.
    "compaction-breaks-slow-replay": { 3: 0 },
  };
  const unfitSmyte = {
    "sessionize-original-test": "another operation",
    "sessionize-then-reduce-loses-session": "another operation",
    "refill-time-is-int32": "the bounds of another grammar",
  };
  test.each(recorded("smyte-token-bucket", unfitSmyte))("Smyte: $name", async ({ name, steps }) => {
    const prefix = uniquePrefix();
    for (const [index, step] of steps.entries()) {
      if (step.op.startsWith("#")) continue;
      const { bucket, key, reduces, take } = read(step, prefix, true);
      const { remaining } = await bucket.peek(key, { at: take.at });
      expect(remaining, `step ${index}`).toBe(expected(ofSmyte, name, index, step));
      if (reduces) expect((await bucket.take(key, take)).allowed, `step ${index}`).toBe(remaining >= take.cost);
    }
  });

  test("Smyte: take-more-than-amount-drains-to-zero, but only where asked", async () => {
    const sequence = recorded("smyte-token-bucket").find(({ name }) => name === "take-more-than-amount-drains-to-zero");
    const prefix = uniquePrefix();
    const before: number[] = [];
    for (const step of sequence?.steps ?? []) {
      if (step.op.startsWith("#")) continue;
      const { bucket, key, reduces, take } = read(step, prefix, false);
      before.push((await bucket.peek(key, { at: take.at })).remaining);
      if (reduces) await bucket.take(key, take);
    }
    expect(before).toEqual([5, 2, 2, 2, 5, 5]);
  });

  test("Smyte: params-are-part-of-the-key", async () => {
    const of = (max: number, refillTime: number) => limiterOf({ algorithm: "token-bucket", max, refillTime }, prefix);
    const prefix = uniquePrefix();
    for (const limiter of [of(2, 60_000), of(3, 60_000), of(2, 61_000)]) {
      expect((await limiter.take("k", { cost: 2 })).allowed).toBe(true);
    }
    expect((await of(2, 60_000).peek("k")).remaining).toBe(0);
  });

  // What was there stays there when the clock goes back.
  const ofHunt: Corrections = { "clock-backwards-more-than-one-period": { 2: true, 4: true, 6: true } };
  type Hunt = { maxAmount: number; refillTimeS: number; refillAmount: number };
  test.each(recorded<Hunt>("petehunt-token-bucket"))("petehunt: $name", async ({ name, params, steps }) => {
    const { maxAmount: max, refillTimeS, refillAmount } = params;
    const limiter = limiterOf({ algorithm: "token-bucket", max, refillTime: refillTimeS * 1000, refillAmount });
    for (const [index, step] of steps.entries()) {
      const was = expected(ofHunt, name, index, step);
      const { atMs: at, args } = step;
      if (step.op === "get") expect((await limiter.peek("k", { at })).remaining, `step ${index}`).toBe(was);
      if (step.op !== "reduce") continue;
      expect((await limiter.take("k", { at, cost: Number(args[0]) })).allowed, `step ${index}`).toBe(was);
    }
  });
});
