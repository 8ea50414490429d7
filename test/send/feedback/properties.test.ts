import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { headersOf } from "../../../dist/send/feedback/headers.js";
import { MAX_PAUSE_MS, readFeedback } from "../../../dist/send/feedback/read.js";

const NAMES = [
  "retry-after",
  "retry-after-ms",
  "date",
  "age",
  "ratelimit",
  "ratelimit-policy",
  ...["limit", "remaining", "reset", "reset-after"].flatMap((part) => [
    `ratelimit-${part}`,
    `x-ratelimit-${part}`,
    `x-rate-limit-${part}`,
    `x-ratelimit-${part}-requests`,
    `x-ratelimit-${part}-tokens`,
    `anthropic-ratelimit-requests-${part}`,
    `anthropic-ratelimit-tokens-${part}`,
    `x-user-limit-24hour-${part}`,
  ]),
  "x-ratelimit-resource",
  "x-ratelimit-bucket",
  "x-ratelimit-scope",
  "x-ratelimit-global",
  "x-github-request-id",
  "x-should-retry",
  "stripe-version",
  "stripe-rate-limited-reason",
  "x-shopify-shop-api-call-limit",
];

/** What servers send, nearly send, and never should. */
const value = fc.oneof(
  fc.string({ maxLength: 60 }),
  fc.string({ unit: "binary", maxLength: 20 }),
  fc.bigInt().map(String),
  fc.nat().map(String),
  fc.double().map(String),
  fc.constantFrom(
    "0",
    "-1",
    "1e400",
    "9".repeat(400),
    "1m30s",
    "0s",
    "true",
    "32/40",
    "shared",
    "global-rate",
    "constructor",
  ),
  fc.date().map((date) => date.toUTCString()),
  fc.date().map((date) => date.toString()),
  fc.date({ noInvalidDate: true }).map((date) => date.toISOString()),
  fc
    .tuple(fc.string({ maxLength: 8 }), fc.integer(), fc.integer())
    .map(([name, r, t]) => `${JSON.stringify(name)};r=${r};t=${t}`),
  fc.tuple(fc.nat(), fc.nat()).map(([q, w]) => `"a";q=${q};w=${w}, ${q};w=${w}`),
  fc.tuple(fc.nat(), fc.nat()).map(([r, t]) => `limit=9, remaining=${r}, reset=${t}`),
);
const headers = fc.dictionary(fc.constantFrom(...NAMES), fc.oneof(value, fc.array(value, { maxLength: 3 })), {
  noNullPrototype: true,
});
const status = fc.oneof(fc.constantFrom(200, 403, 429, 503, 529), fc.integer({ min: 100, max: 599 }));
const now = fc.integer({ min: 0, max: 8.64e15 });
const own = fc.option(
  fc.func(
    fc.oneof(
      fc.anything(),
      fc.record({ pauseFor: fc.anything(), remaining: fc.anything(), resetAfter: fc.anything() }),
    ),
  ),
  { nil: undefined },
);

const RUNS = { numRuns: 3000 };

describe("readFeedback, whatever it is given", () => {
  it("does not throw, and asks for whole ms from 0 to 24 h", () => {
    const property = fc.property(status, headers, now, fc.string(), own, (code, fields, time, body, reader) => {
      // @ts-expect-error an own reader may return anything
      const { feedback } = readFeedback({ status: code, headers: headersOf(fields), body, now: time }, reader);
      if (feedback === undefined) return;
      expect(feedback.source).not.toBe("");
      for (const ms of [feedback.pauseFor, feedback.retryAfter]) {
        if (ms !== undefined) expect(Number.isInteger(ms) && ms >= 0 && ms <= MAX_PAUSE_MS).toBe(true);
      }
      expect(feedback.remaining ?? 0).toBeGreaterThanOrEqual(0);
      expect(feedback.resetAfter ?? 0).toBeGreaterThanOrEqual(0);
      for (const { limit, perMs = 1 } of feedback.policies ?? []) expect(limit > 0 && perMs > 0).toBe(true);
    });
    fc.assert(property, RUNS);
  });

  it("waits as long as Retry-After says", () => {
    const seconds = fc.integer({ min: 1, max: MAX_PAUSE_MS / 1000 });
    const property = fc.property(fc.constantFrom(403, 429, 503), headers, now, seconds, (code, fields, time, wait) => {
      // These two concern one resource alone, and the other is a finer Retry-After.
      const { "x-ratelimit-scope": _, "stripe-version": __, "retry-after-ms": ___, ...others } = fields;
      const all = headersOf({ ...others, "retry-after": `${wait}` });
      const { feedback } = readFeedback({ status: code, headers: all, now: time });
      expect(feedback).toMatchObject({
        pauseFor: wait * 1000,
        retryAfter: wait * 1000,
        refused: true,
        source: "Retry-After",
      });
    });
    fc.assert(property, RUNS);
  });

  it("reads nothing into headers that it does not know", () => {
    const unknown = fc.dictionary(
      fc.string({ minLength: 1 }).filter((name) => !NAMES.includes(name.toLowerCase())),
      value,
      { noNullPrototype: true },
    );
    fc.assert(
      fc.property(unknown, (fields) => {
        expect(readFeedback({ status: 200, headers: headersOf(fields) }).feedback).toBeUndefined();
      }),
      RUNS,
    );
  });
});

describe("headersOf", () => {
  it("finds names in any case, and joins what was sent several times", () => {
    const { get } = headersOf({ "retry-after": "5", ratelimit: ['"a";r=1', '"b";r=2'], empty: undefined });
    expect([get("Retry-After"), get("RateLimit"), get("empty"), get("missing")]).toEqual([
      "5",
      '"a";r=1, "b";r=2',
      undefined,
      undefined,
    ]);
  });

  it("has no headers but those that were sent", () => {
    expect(headersOf({}).get("constructor")).toBeUndefined();
  });
});
