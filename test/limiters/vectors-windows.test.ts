import type { Limiter, LimiterResult } from "spillway/limiters";
import { describe, expect, test } from "vitest";
import { uniquePrefix } from "../helpers/redis.js";
import { type Corrections, expected, limiterOf, recorded, type Sequence, type Step } from "./recorded.js";

const invalid = expect.objectContaining({ code: "ERR_INVALID_LIMIT" });

describe("fixed-window", () => {
  interface Params {
    readonly limits: Readonly<Record<string, number>>;
    readonly countDenied: boolean;
  }
  const PERIODS = { second: "1s", minute: "1m", hour: "1h", day: "1d" } as const;
  const unfit = {
    "two-periods-not-counted-variant": "a fixed window has one period",
    "month-and-year-windows": "months differ in length",
  };
  test.each(recorded<Params>("fixed-window", unfit))("$name", async ({ params, steps }) => {
    const [[period, limit] = ["", 0]] = Object.entries(params.limits);
    const per = PERIODS[period as keyof typeof PERIODS];
    const limiter = limiterOf({ algorithm: "fixed-window", limit, per, countRefused: params.countDenied });
    for (const [index, step] of steps.entries()) {
      if (step.op !== "request") continue;
      const { allowed, remaining, resetAfter } = await limiter.take(String(step.args[0]), { at: step.atMs });
      const reply = { allowed, remaining: { [period]: remaining }, resetS: Math.ceil(resetAfter / 1000) };
      // Without a call that counts there is nothing to reset.
      expect(reply, `step ${index}`).toEqual(step.expect);
    }
  });
});

describe("sliding-log", () => {
  interface Params {
    readonly interval: number;
    readonly maxInInterval: number;
    readonly minDifference?: number;
  }
  interface Info {
    readonly blocked: boolean;
    readonly millisecondsUntilAllowed: number;
    readonly actionsRemaining: number;
  }
  // It expires by the older clock although the newer call still counts, and computes waits from that one.
  const ofRolling: Corrections = { "clock-backwards": { 1: [10_000, 0], 2: [10_000, 0], 4: [4500, 0] } };
  test.each(recorded<Params>("sliding-log"))("rolling: $name", async ({ name, params, steps }) => {
    const { interval, maxInInterval, minDifference } = params;
    const rules = [{ limit: maxInInterval, per: interval }];
    if (minDifference !== undefined) rules.push({ limit: 1, per: minDifference });
    const limiter = limiterOf({ algorithm: "sliding-log", rules, countRefused: true });
    for (const [index, step] of steps.entries()) {
      const { op, args, atMs: at } = step;
      const key = String(args[0]);
      const was = (step.expect ?? {}) as Info;
      if (op === "clear") await limiter.reset(key);
      if (op === "wouldLimitWithInfo") expect((await limiter.peek(key, { at })).allowed).toBe(!was.blocked);
      if (op !== "limitWithInfo") continue;
      const { allowed, remaining } = await limiter.take(key, { at });
      const { retryAfter } = await limiter.peek(key, { at });
      const recordedReply = { ...step, expect: [was.millisecondsUntilAllowed, was.actionsRemaining] };
      expect(allowed, `step ${index}`).toBe(!was.blocked);
      const reply = expected(ofRolling, name, index, recordedReply) as number[];
      // Its second rule is not in what it says to remain.
      if (minDifference === undefined) expect([retryAfter, remaining], `step ${index}`).toEqual(reply);
      expect(retryAfter, `step ${index}`).toBe(reply[0]);
    }
  });

  type Rules = readonly (readonly [number, number])[];
  const logOf = (rules: Rules, prefix: string): Limiter =>
    limiterOf({ algorithm: "sliding-log", rules: rules.map(([limit, s]) => ({ limit, per: s * 1000 })) }, prefix);

  /** Drives `new`, `ping` and `block`, and compares the waits in ms. */
  async function expectWaits({ name, steps }: Sequence<unknown>, corrections: Corrections): Promise<void> {
    const prefix = uniquePrefix();
    const limiters = new Map<unknown, Limiter>();
    for (const [index, step] of steps.entries()) {
      const [instance, key, more] = step.args;
      if (step.op === "new") limiters.set(instance, logOf(key as Rules, prefix));
      const limiter = limiters.get(instance);
      if (step.op === "block") {
        await limiter?.block(String(key), (more as { seconds: number }).seconds * 1000, "by hand", { at: step.atMs });
      }
      if (step.op !== "ping") continue;
      const was = (step.expect as { waitMs: number }).waitMs;
      const result = await limiter?.take(String(key), { at: step.atMs });
      const right = expected(corrections, name, index, { ...step, expect: was });
      expect(result?.retryAfter, `step ${index}`).toBe(right);
      expect(result?.allowed, `step ${index}`).toBe(right === 0);
    }
  }

  const ofDomainTools: Corrections = {
    // The longest wait, not that of the first rule that fails.
    "wait-is-the-first-failing-rule-not-the-longest": { 6: 55_500, 10: 500 },
    "rule-order-sorted-by-requests-then-seconds": { 3: 56_000 },
    // To the ms.
    "manual-block-seconds-and-ttl-rounding": { 3: 9600, 4: 9400, 5: 600, 6: 500, 7: 499, 8: 1, 9: 0, 10: 0 },
    "manual-block-comes-before-rules-and-does-not-log": { 3: 4000 },
    "four-rule-text-example": { 21: 40_500 },
    // In the order of time.
    "out-of-order-clients-corrupt-order": { 5: 9000, 6: 1000, 7: 0 },
    // Each rule keeps its own log.
    "two-limiters-one-key-trim-each-others-log": { 7: 58_600, 8: 58_500 },
  };
  const unfit = {
    "blocking-acquire-sleeps-rule-by-rule": "a limiter does not sleep; see the next test",
    "manual-block-needs-a-default": "a limiter has a rule, and a block a duration; see the next test",
    "zero-requests-rule-blocks-all": "a limit is at least 1; see the next test",
    "add-condition-forms": "the words of its own grammar",
    "rule-added-later-has-no-history": "rules change by migration; see the next test",
  };
  test.each(recorded("domaintools-multi-rule", unfit))("DomainTools: $name", (sequence) =>
    expectWaits(sequence, ofDomainTools),
  );

  test("DomainTools: blocking-acquire-sleeps-rule-by-rule, but once", async () => {
    const limiter = logOf([[1, 1], [3, 60]], uniquePrefix()); // prettier-ignore
    const start = 1_368_705_600_000;
    for (const after of [0, 1000, 2000]) await limiter.take("k", { at: start + after });
    const { retryAfter } = await limiter.take("k", { at: start + 2500 });
    expect(retryAfter).toBe(57_500);
    expect((await limiter.take("k", { at: start + 2500 + retryAfter })).allowed).toBe(true);
  });

  test("DomainTools: rule-added-later-has-no-history, but what was used is carried over", async () => {
    const prefix = uniquePrefix();
    const at = 1_368_705_600_000;
    const before = { algorithm: "sliding-log", limit: 1, per: "1s" } as const;
    const old = limiterOf(before, prefix);
    for (const after of [0, 1000, 2000]) await old.take("k", { at: at + after });
    const now = logOf([[1, 1], [3, 60]], prefix); // prettier-ignore
    await now.migrate("k", before, { at: at + 2000 });
    const waits = [];
    for (const after of [2000, 3000, 4000, 5000]) waits.push((await now.take("k", { at: at + after })).retryAfter);
    expect(waits).toEqual([1000, 0, 0, 57_000]);
  });

  test("DomainTools: no rules, no requests and negative ones are refused when they are declared", () => {
    expect(() => logOf([], "x")).toThrow(invalid);
    for (const limit of [0, -1]) expect(() => logOf([[limit, 7]], "x")).toThrow(invalid);
    for (const s of [0, -5]) expect(() => logOf([[1, s]], "x")).toThrow(invalid);
  });
});

describe("sliding-window-counter", () => {
  interface Params {
    readonly windowMs: number;
    readonly subBuckets: number;
    readonly limit: number;
    readonly countDenied: boolean;
  }
  const refused = { allowed: false, sum: 2 };
  const corrections: Corrections = {
    // Calls on an older clock are in one window with the newer ones, which may hold no more than the limit.
    "clock-backwards": { 1: { allowed: true, sum: 2 }, 2: refused, 3: refused, 4: refused },
  };
  test.each(recorded<Params>("sliding-window-counter-60"))("$name", async ({ name, params, steps }) => {
    const { windowMs: per, subBuckets: buckets, limit, countDenied: countRefused } = params;
    const limiter = limiterOf({ algorithm: "sliding-window-counter", limit, per, buckets, countRefused });
    for (const [index, step] of steps.entries()) {
      if (step.op !== "request") continue;
      const { allowed, remaining } = await limiter.take(String(step.args[0]), { at: step.atMs });
      const was = expected(corrections, name, index, step) as { allowed: boolean; sum: number };
      expect([allowed, limit - remaining], `step ${index}`).toEqual([was.allowed, Math.min(was.sum, limit)]);
    }
  });
});

describe("sliding-window", () => {
  interface Params {
    readonly limit: number;
    readonly windowMs: number;
  }
  // A window that is over counts once, not more.
  const corrections: Corrections = { "clock-backwards-weight-above-one": { 2: true } };
  // Its windows are aligned to the first second of the year 1.
  const shiftOf = (windowMs: number): number => 62_135_596_800_000 % windowMs;
  test.each(recorded<Params>("weighted-sliding-window-check-first"))("$name", async ({ name, params, steps }) => {
    const prefix = uniquePrefix();
    const { windowMs: per } = params;
    const of = (limit: number) => ({ algorithm: "sliding-window", limit, per }) as const;
    let options = of(params.limit);
    let limiter = limiterOf(options, prefix);
    const take = ({ atMs, args }: Step): Promise<LimiterResult> =>
      limiter.take("k", { at: atMs + shiftOf(per), cost: Number(args[0] ?? 1) });
    for (const [index, step] of steps.entries()) {
      if (step.op === "setLimit") {
        const from = options;
        options = of(Number(step.args[0]));
        limiter = limiterOf(options, prefix);
        await limiter.migrate("k", from, { at: step.atMs + shiftOf(per) });
        continue;
      }
      expect((await take(step)).allowed, `step ${index}`).toBe(expected(corrections, name, index, step));
    }
  });
});
