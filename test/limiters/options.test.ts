import { createLimiter, type ClassicRule } from "spillway/limiters";
import { describe, expect, test } from "vitest";
import { encodeRule, normalizeRule } from "../../dist/limiters/rule.js";

const invalid = expect.objectContaining({ code: "ERR_INVALID_LIMIT" });
const url = "redis://127.0.0.1:1";

describe("options", () => {
  test("that are misspelt or wrong do not compile, and throw", () => {
    // @ts-expect-error a misspelt algorithm
    expect(() => createLimiter(url, { algorithm: "fixed-windows", limit: 1, per: "1s" })).toThrow(invalid);
    // @ts-expect-error a misspelt option
    expect(() => createLimiter(url, { algorithm: "fixed-window", limit: 1, pre: "1s" })).toThrow(invalid);
    // @ts-expect-error an option of another algorithm
    expect(() => createLimiter(url, { algorithm: "fixed-window", limit: 1, per: "1s", buckets: 60 })).toThrow(invalid);
    // @ts-expect-error a token bucket drains
    expect(() => createLimiter(url, { algorithm: "token-bucket", max: 1, refillTime: "1s", countRefused: true })).toThrow(invalid); // prettier-ignore
    // @ts-expect-error only a token bucket drains
    expect(() => createLimiter(url, { algorithm: "leaky-bucket", rate: "1/s", drain: true })).toThrow(invalid);
    // @ts-expect-error one or several rules
    expect(() => createLimiter(url, { algorithm: "sliding-log", limit: 1, per: "1s", rules: ["1/s"] })).toThrow(
      invalid,
    );
    // @ts-expect-error the cost is what counts
    expect(() => createLimiter(url, { algorithm: "fixed-window", limit: 1, per: "1s", counts: "cost" })).toThrow(
      invalid,
    );
    // @ts-expect-error no duration
    expect(() => createLimiter(url, { algorithm: "sliding-window", limit: 1, per: "soon" })).toThrow(invalid);
    // @ts-expect-error nothing
    expect(() => createLimiter(url)).toThrow(invalid);
    // @ts-expect-error no limit
    expect(() => createLimiter(url, { algorithm: "sliding-window", per: "1s" })).toThrow(invalid);
  });

  test("strict is only for token buckets", async () => {
    const limiter = createLimiter(url, { algorithm: "fixed-window", limit: 1, per: "1s" });
    // @ts-expect-error
    await expect(limiter.take("k", { strict: true })).rejects.toMatchObject({ code: "ERR_INVALID_CALL" });
    await limiter.close();
  });

  test.each<[string, object, string]>([
    [
      "what is counted, which is always the cost here",
      { algorithm: "leaky-bucket", rate: { limit: 1, per: "1s", counts: "cost" } },
      "limiter.rate.counts",
    ],
    [
      "the same of one of several rules",
      { algorithm: "sliding-log", rules: [{ limit: 1, per: "1s", counts: "cost" }] },
      "limiter.rules[0].counts",
    ],
    ["a rate too many", { algorithm: "leaky-bucket", rate: "2000000/s" }, "limiter.rate"],
    ["no burst", { algorithm: "leaky-bucket", rate: "1/s", burst: 0 }, "limiter.burst"],
    ["a burst of more than ten years", { algorithm: "leaky-bucket", rate: "1/d", burst: 4000 }, "limiter.burst"],
    ["no tokens", { algorithm: "token-bucket", max: 0, refillTime: "1s" }, "limiter.max"],
    [
      "half a token",
      { algorithm: "token-bucket", max: 1, refillTime: "1s", refillAmount: 0.5 },
      "limiter.refillAmount",
    ],
    ["no time", { algorithm: "token-bucket", max: 1, refillTime: 0 }, "limiter.refillTime"],
    ["no limit", { algorithm: "fixed-window", limit: 0, per: "1s" }, "limiter.limit"],
    ["too long a window", { algorithm: "fixed-window", limit: 1, per: "400d" }, "limiter.per"],
    ["no rules", { algorithm: "sliding-log", rules: [] }, "limiter.rules"],
    ["a wrong rule", { algorithm: "sliding-log", rules: ["1/s", "x"] }, "limiter.rules[1]"],
    ["one bucket", { algorithm: "sliding-window-counter", limit: 1, per: "1s", buckets: 1 }, "limiter.buckets"],
    ["241 buckets", { algorithm: "sliding-window-counter", limit: 1, per: "1s", buckets: 241 }, "limiter.buckets"],
    [
      "a flag that is none",
      { algorithm: "fixed-window", limit: 1, per: "1s", countRefused: 1 },
      "limiter.countRefused",
    ],
    ["a prefix that is none", { algorithm: "fixed-window", limit: 1, per: "1s", prefix: 5 }, "prefix"],
    ["a prefix with braces", { algorithm: "fixed-window", limit: 1, per: "1s", prefix: "{x}" }, "prefix"],
  ])("with %s are named", (_name, options, option) => {
    const create = createLimiter as (redis: string, options: object) => unknown;
    expect(() => create(url, options)).toThrow(expect.objectContaining({ code: "ERR_INVALID_LIMIT", option }));
  });

  test("in errors begin with the path of the rule", () => {
    const wrong = { algorithm: "fixed-window", limit: 0, per: "1s" } as const;
    const path = "api.example.org.rules[2]";
    expect(() => normalizeRule(wrong, path)).toThrow(expect.objectContaining({ option: `${path}.limit` }));
  });
});

test.each<[ClassicRule, string]>([
  [{ algorithm: "leaky-bucket", rate: "10/s" }, "leaky-bucket:10:1000000:1"],
  [{ algorithm: "token-bucket", max: 5, refillTime: "1h" }, "token-bucket:5:3600000000:5"],
  [{ algorithm: "token-bucket", max: 5, refillTime: 3_600_000, refillAmount: 50 }, "token-bucket:5:3600000000:5"],
  [{ algorithm: "fixed-window", limit: 3, per: "1m" }, "fixed-window:3:60000000"],
  [{ algorithm: "sliding-log", limit: 3, per: "1m" }, "sliding-log:3:60000000"],
  [{ algorithm: "sliding-log", rules: ["20/m", "1/s"] }, "sliding-log:1:1000000:20:60000000"],
  [{ algorithm: "sliding-window-counter", limit: 3, per: "1m" }, "sliding-window-counter:3:60000000:60"],
  [{ algorithm: "sliding-window", limit: 3, per: "1.5s" }, "sliding-window:3:1500000"],
])("the text of %j", (rule, text) => {
  expect(encodeRule(normalizeRule(rule, "rule"))).toBe(text);
});
