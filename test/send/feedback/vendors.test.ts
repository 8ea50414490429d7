import { describe, expect, it } from "vitest";
import { hear, hearAll, NOW } from "./hear.js";

/** Seconds since 1970, so many seconds after the response. */
const epoch = (seconds: number): string => String(NOW / 1000 + seconds);
const iso = (seconds: number): string => new Date(NOW + seconds * 1000).toISOString();

describe("GitHub", () => {
  const github = (remaining: number, resource = "core"): Record<string, string> => ({
    "x-github-request-id": "C2E4:1F0B:12AB34:56CD78:6637A1B2",
    "x-ratelimit-limit": "5000",
    "x-ratelimit-remaining": String(remaining),
    "x-ratelimit-used": String(5000 - remaining),
    "x-ratelimit-reset": epoch(1800),
    "x-ratelimit-resource": resource,
  });
  const secondary =
    '{"message":"You have exceeded a secondary rate limit. Please wait a few minutes before you try again."}';

  it("reads the window of an hour", () => {
    expect(hear(200, github(4999))).toEqual({
      remaining: 4999,
      resetAfter: 1_800_000,
      policies: [{ name: "x-ratelimit-limit", limit: 5000, perMs: 3_600_000, unit: "requests" }],
      source: "GitHub (core)",
    });
  });

  it("knows the windows of search and GraphQL", () => {
    expect(hear(200, github(9, "search"))?.policies).toMatchObject([{ perMs: 60_000, unit: "requests" }]);
    expect(hear(200, github(9, "graphql"))?.policies).toMatchObject([{ perMs: 3_600_000, unit: "points" }]);
    expect(hear(200, github(9, "graphql"))?.remaining).toBeUndefined();
  });

  it.each([403, 429])("waits for the reset when a %d has nothing remaining", (status) => {
    expect(hear(status, github(0))).toMatchObject({ pauseFor: 1_800_000, refused: true, source: "GitHub (core)" });
  });

  it("waits for the reset when the last request of a window went through", () => {
    const feedback = hear(200, github(0));
    expect(feedback).toMatchObject({ pauseFor: 1_800_000, remaining: 0 });
    expect(feedback?.refused).toBeUndefined();
  });

  it("heeds the Retry-After of a secondary limit", () => {
    const headers = { ...github(4990), "retry-after": "60" };
    expect(hear(403, headers, { body: secondary })).toMatchObject({
      pauseFor: 60_000,
      refused: true,
      source: "Retry-After",
    });
    expect(hear(403, headers)).toMatchObject({ pauseFor: 60_000, refused: true });
  });

  it("waits for a minute when a secondary limit names no time", () => {
    const expected = { pauseFor: 60_000, refused: true, remaining: 4990, source: "GitHub (secondary limit)" };
    expect(hear(403, github(4990), { body: secondary })).toMatchObject(expected);
    expect(hear(429, github(4990))).toMatchObject(expected);
    expect(hear(403, { "x-github-request-id": "1" }, { body: secondary })).toMatchObject({ pauseFor: 60_000 });
  });

  it("knows the older wording of a secondary limit", () => {
    const body = '{"message":"You have triggered an abuse detection mechanism. Please wait a few minutes."}';
    expect(hear(403, github(4990), { body })).toMatchObject({ pauseFor: 60_000, refused: true });
  });

  it("takes no document about limits for one", () => {
    expect(hear(200, github(4990), { body: secondary })?.pauseFor).toBeUndefined();
  });

  it("takes no missing permission for a limit", () => {
    const feedback = hear(403, github(4990), { body: '{"message":"Resource not accessible by integration"}' });
    expect(feedback?.pauseFor).toBeUndefined();
    expect(feedback?.refused).toBeUndefined();
  });
});

describe("OpenAI", () => {
  const openai = {
    "x-ratelimit-limit-requests": "60",
    "x-ratelimit-limit-tokens": "150000",
    "x-ratelimit-remaining-requests": "59",
    "x-ratelimit-remaining-tokens": "149984",
    "x-ratelimit-reset-requests": "1s",
    "x-ratelimit-reset-tokens": "6m0s",
  };

  it("reads requests and tokens", () => {
    expect(hear(200, openai)).toEqual({
      remaining: 59,
      resetAfter: 1000,
      policies: [
        { name: "x-ratelimit-limit-requests", limit: 60, perMs: undefined, unit: "requests" },
        { name: "x-ratelimit-limit-tokens", limit: 150_000, perMs: undefined, unit: "tokens" },
      ],
      source: "OpenAI",
    });
  });

  it.each([
    ["12ms", 12],
    ["6s", 6000],
    ["1m30s", 90_000],
    ["6m0s", 360_000],
    ["7.66s", 7660],
    ["1h0m1.5s", 3_601_500],
    ["1d2h", 93_600_000],
    ["0s", 0],
  ])("reads the duration %s", (reset, ms) => {
    expect(hear(200, { ...openai, "x-ratelimit-reset-requests": reset })?.resetAfter).toBe(ms);
  });

  it.each(["", "s", "6 s", "1m30", "30s1m", "-6s", "1w", "6S"])("ignores the duration %j", (reset) => {
    expect(hear(200, { ...openai, "x-ratelimit-reset-requests": reset })?.resetAfter).toBeUndefined();
  });

  it("pauses until there are tokens again", () => {
    const feedback = hear(429, { ...openai, "x-ratelimit-remaining-tokens": "0" });
    expect(feedback).toMatchObject({ pauseFor: 360_000, remaining: 59, refused: true, source: "OpenAI" });
  });

  it("hears retry-after-ms and x-should-retry first", () => {
    const headers = {
      ...openai,
      "x-ratelimit-remaining-requests": "0",
      "retry-after": "1",
      "retry-after-ms": "873",
      "x-should-retry": "true",
    };
    expect(hear(429, headers)).toMatchObject({ pauseFor: 873, retry: true, remaining: 0, source: "Retry-After" });
  });
});

describe("Anthropic", () => {
  const anthropic = {
    "anthropic-ratelimit-requests-limit": "50",
    "anthropic-ratelimit-requests-remaining": "49",
    "anthropic-ratelimit-requests-reset": "2026-05-04T12:00:01Z",
    "anthropic-ratelimit-input-tokens-limit": "30000",
    "anthropic-ratelimit-input-tokens-remaining": "30000",
    "anthropic-ratelimit-input-tokens-reset": "2026-05-04T12:00:00Z",
    "anthropic-ratelimit-output-tokens-limit": "8000",
    "anthropic-ratelimit-output-tokens-remaining": "0",
    "anthropic-ratelimit-output-tokens-reset": "2026-05-04T14:00:42.5+02:00",
    "anthropic-ratelimit-tokens-limit": "38000",
    "anthropic-ratelimit-tokens-remaining": "30000",
    "anthropic-ratelimit-tokens-reset": iso(42),
  };

  it("reads times in RFC 3339", () => {
    expect(hear(200, anthropic)).toMatchObject({
      pauseFor: 42_500,
      remaining: 49,
      resetAfter: 1000,
      source: "Anthropic",
    });
    expect(hear(200, anthropic)?.policies).toContainEqual({
      name: "anthropic-ratelimit-requests-limit",
      limit: 50,
      perMs: 60_000,
      unit: "requests",
    });
  });

  it.each(["2026-05-04", "2026-05-04T12:00:01", "2026-13-04T12:00:01Z", "tomorrow"])("ignores %s", (reset) => {
    expect(hear(200, { ...anthropic, "anthropic-ratelimit-requests-reset": reset })?.resetAfter).toBeUndefined();
  });

  it("heeds the Retry-After of an overloaded server", () => {
    expect(hear(529, { ...anthropic, "retry-after": "5" })).toMatchObject({ pauseFor: 5000, source: "Retry-After" });
  });
});

describe("Discord", () => {
  const discord = {
    "X-RateLimit-Limit": "10",
    "X-RateLimit-Remaining": "0",
    "X-RateLimit-Reset": "1470173023.123",
    "X-RateLimit-Reset-After": "64.57",
    "X-RateLimit-Bucket": "abcd1234",
  };

  it("prefers Reset-After, which needs no clock", () => {
    expect(hear(200, discord)).toMatchObject({ pauseFor: 64_570, resetAfter: 64_570, source: "Discord (abcd1234)" });
  });

  it("heeds Retry-After when a bot is refused", () => {
    const headers = { ...discord, "Retry-After": "65", "X-RateLimit-Scope": "user" };
    expect(hear(429, headers)).toMatchObject({ pauseFor: 65_000, refused: true, source: "Retry-After" });
    expect(
      hear(429, { "Retry-After": "65", "X-RateLimit-Global": "true", "X-RateLimit-Scope": "global" }),
    ).toMatchObject({
      pauseFor: 65_000,
      refused: true,
    });
  });

  it("pauses nobody else for a resource that others have used up", () => {
    const headers = { ...discord, "X-RateLimit-Remaining": "9", "Retry-After": "1337", "X-RateLimit-Scope": "shared" };
    const feedback = hear(429, headers);
    expect(feedback).toMatchObject({ retryAfter: 1_337_000, source: "Discord (shared)" });
    expect(feedback?.pauseFor).toBeUndefined();
    expect(feedback?.refused).toBeUndefined();
  });
});

describe("Stripe", () => {
  const stripe = (reason?: string): Record<string, string> => ({
    "request-id": "req_nHNwvJfAyVhh4m",
    "stripe-version": "2024-06-20",
    "stripe-should-retry": "true",
    ...(reason !== undefined && { "stripe-rate-limited-reason": reason }),
  });

  it.each(["global-rate", "endpoint-rate"])("waits for the next second with %s", (reason) => {
    expect(hear(429, stripe(reason))).toEqual({
      pauseFor: 1000,
      refused: true,
      retry: true,
      source: `Stripe (${reason})`,
    });
  });

  it.each(["global-concurrency", "endpoint-concurrency"])("slows down without a pause with %s", (reason) => {
    expect(hear(429, stripe(reason))).toEqual({ refused: true, retry: true, source: `Stripe (${reason})` });
  });

  it.each([["resource-specific"], [undefined]])("lets other objects be with %s", (reason) => {
    expect(hear(429, stripe(reason))).toEqual({ retry: true, source: `Stripe (${reason ?? "lock"})` });
  });

  it("has nothing to say otherwise", () => {
    expect(
      hear(402, { "request-id": "req_1", "stripe-version": "2024-06-20", "stripe-should-retry": "false" }),
    ).toEqual({
      retry: false,
      source: "status 402",
    });
  });
});

describe("Slack", () => {
  it("says it all with Retry-After", () => {
    expect(hear(429, { "Retry-After": "30", "x-slack-req-id": "7d1a" })).toMatchObject({ pauseFor: 30_000 });
  });
});

describe("Shopify", () => {
  const shopify = (used: string): Record<string, string> => ({ "x-shopify-shop-api-call-limit": used });

  it("reads a bucket that leaks 2/s", () => {
    expect(hear(200, shopify("32/40"))).toEqual({
      remaining: 8,
      resetAfter: 16_000,
      policies: [{ name: "x-shopify-shop-api-call-limit", limit: 40, perMs: 20_000, unit: "requests" }],
      source: "Shopify",
    });
  });

  it("waits for room for one when it is full", () => {
    expect(hear(200, shopify("40/40"))).toMatchObject({ pauseFor: 500, remaining: 0, resetAfter: 20_000 });
    expect(hear(200, shopify("400/400"))?.pauseFor).toBe(50);
    expect(hear(429, { ...shopify("41/40"), "Retry-After": "2.0" })).toMatchObject({ pauseFor: 2000, remaining: 0 });
  });

  it.each(["40", "/40", "1/0", "1/40/2", "-1/40", "a/b", "1/ 40"])("ignores %j", (value) => {
    expect(hear(200, shopify(value))).toBeUndefined();
  });
});

describe("X", () => {
  const x = (remaining: number): Record<string, string> => ({
    "x-rate-limit-limit": "900",
    "x-rate-limit-remaining": String(remaining),
    "x-rate-limit-reset": epoch(600),
  });

  it("reads epoch seconds", () => {
    expect(hear(200, x(847))).toMatchObject({ remaining: 847, resetAfter: 600_000, source: "X" });
    expect(hear(429, x(0))).toMatchObject({ pauseFor: 600_000, refused: true });
  });

  it("keeps to the limit of a day as well", () => {
    const day = {
      "x-user-limit-24hour-limit": "100",
      "x-user-limit-24hour-remaining": "0",
      "x-user-limit-24hour-reset": epoch(40_000),
    };
    expect(hear(429, { ...x(800), ...day })).toMatchObject({ pauseFor: 40_000_000, remaining: 0 });
  });
});

describe("everybody else", () => {
  const rest = (reset: string, remaining = "0"): Record<string, string> => ({
    "X-RateLimit-Limit": "20",
    "X-RateLimit-Remaining": remaining,
    "X-RateLimit-Reset": reset,
  });

  it.each([
    ["30", 30_000],
    ["999999999", 366 * 86_400_000],
    [epoch(30), 30_000],
    [String(NOW + 30_000), 30_000],
    ["Mon May 04 2026 12:00:30 GMT+0000 (Coordinated Universal Time)", 30_000],
    [epoch(-30), 0],
  ])("takes %s for seconds, an epoch time or a date", (reset, ms) => {
    expect(hearAll(200, rest(reset)).feedback?.resetAfter).toBe(ms);
  });

  it("reads decimals, and fewer than none as none", () => {
    expect(hear(200, rest("325", "598.0"))?.remaining).toBe(598);
    expect(hear(200, rest("5", "-3"))).toMatchObject({ remaining: 0, pauseFor: 5000 });
  });

  it("waits for the reset of a refusal that names nothing else", () => {
    expect(hear(429, { "X-RateLimit-Reset": "8" })).toMatchObject({ pauseFor: 8000, refused: true });
    expect(hear(200, { "X-RateLimit-Reset": "8" })?.pauseFor).toBeUndefined();
  });

  it("caps a window years ahead at 366 days and its pause at 24 h, with warnings", () => {
    const { feedback, warnings } = hearAll(200, rest("99999999999"));
    expect(feedback).toMatchObject({ pauseFor: 86_400_000, resetAfter: 366 * 86_400_000 });
    expect(warnings).toEqual([
      "x-ratelimit-reset: 99999999999 is more than 366d, taken as that",
      "x-ratelimit-*: the pause until its reset is more than 1d, taken as that",
    ]);
  });

  it("warns of a negative reset and does not pause for it", () => {
    const { feedback, warnings } = hearAll(200, rest("-5"));
    expect(feedback).toMatchObject({ pauseFor: 0, resetAfter: 0 });
    expect(warnings).toEqual(["x-ratelimit-reset: -5 is negative, taken as 0"]);
  });

  it("hears nothing where nothing is said", () => {
    expect(hear(200, { "content-type": "text/plain" })).toBeUndefined();
    expect(hear(500, {})).toBeUndefined();
  });
});
