import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { hear, hearAll, NOW } from "./hear.js";

const DAY = 86_400_000;

describe("Retry-After", () => {
  // A date without a zone means GMT, wherever we are.
  beforeEach(() => void vi.stubEnv("TZ", "Asia/Tokyo"));
  afterEach(() => void vi.unstubAllEnvs());

  it.each<[string, number]>([
    ["120", 120_000],
    ["0.5", 500],
    // 2007.0000000000002 ms in binary.
    ["2.007", 2007],
    ["2.0", 2000],
    [" 7 ", 7000],
    ["Mon, 04 May 2026 12:00:30 GMT", 30_000],
    ["Monday, 04-May-26 12:00:30 GMT", 30_000],
    ["Mon May  4 12:00:30 2026", 30_000],
    ["Mon May 04 2026 14:00:30 GMT+0200 (Central European Summer Time)", 30_000],
    // Not GMT, as it should be, but no other moment for that.
    ["Mon, 04 May 2026 14:00:30 +02:00", 30_000],
    ["Mon, 04 May 2026 07:00:30 EST", 30_000],
    ["Mon, 04 May 2026 12:00:30", 30_000],
    ["Mon, 04-May-2026 12:00:30", 30_000],
    [String(NOW / 1000 + 30), 30_000],
  ])("reads %j as %d ms", (value, pauseFor) => {
    expect(hear(429, { "Retry-After": value })).toEqual({
      pauseFor,
      retryAfter: pauseFor,
      refused: true,
      source: "Retry-After",
    });
  });

  it("counts from a Date without a zone in the same way", () => {
    const headers = { Date: "Mon, 04 May 2026 13:00:00", "Retry-After": "Mon, 04 May 2026 13:00:10 GMT" };
    expect(hear(429, headers)).toMatchObject({ pauseFor: 10_000 });
  });

  it.each([
    [""],
    ["soon"],
    ["5 s"],
    ["5, 7"],
    ["0x10"],
    ["1e3"],
    ["+5"],
    [".5"],
    ["NaN"],
    ["Infinity"],
    ["Mon 5"],
    ["12:00:00"],
    ["Mon, 99 Foo 2026 12:00:00 GMT"],
    ["Mon, 04 May 2026 14:00:30 CEST"],
    ["2026-05-04"],
  ])("ignores %j", (value) => {
    expect(hear(429, { "Retry-After": value })).toEqual({ refused: true, source: "status 429" });
    expect(hear(503, { "Retry-After": value })).toBeUndefined();
  });

  it.each([403, 420, 429, 503, 529])("pauses everybody with status %d", (status) => {
    expect(hear(status, { "Retry-After": "3" })).toMatchObject({ pauseFor: 3000, refused: true });
  });

  it.each([200, 202, 301, 404, 409, 413, 500])("concerns one call with status %d", (status) => {
    expect(hear(status, { "Retry-After": "3" })).toEqual({ retryAfter: 3000, source: "Retry-After" });
  });

  it("takes precedence over all other headers", () => {
    const others = {
      RateLimit: '"default";r=0;t=30',
      "X-RateLimit-Remaining": "0",
      "X-RateLimit-Reset": "900",
      "X-GitHub-Request-Id": "A1B2:3C4D",
    };
    expect(hear(429, others)).toMatchObject({ pauseFor: 30_000, source: "RateLimit" });
    expect(hear(429, { ...others, "Retry-After": "7" })).toMatchObject({ pauseFor: 7000, source: "Retry-After" });
  });

  it("leaves it to the window when it says 0", () => {
    const window = { "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "9" };
    expect(hear(429, { "Retry-After": "0", ...window })).toMatchObject({ pauseFor: 9000, retryAfter: 0 });
    expect(hear(429, { "Retry-After": "0" })).toEqual({ retryAfter: 0, refused: true, source: "Retry-After" });
  });

  it("believes a date in the past to mean now", () => {
    expect(hear(503, { "Retry-After": "Sun, 06 Nov 1994 08:49:37 GMT" })).toEqual({
      retryAfter: 0,
      source: "Retry-After",
    });
  });

  it.each([
    "999999999",
    "99999999999999",
    "9".repeat(400),
    "Thu, 01 Jan 2099 00:00:00 GMT",
    "Fri, 31 Dec 9999 23:59:59 GMT",
  ])("caps %.40s at 24 h, with a warning", (value) => {
    const { feedback, warnings } = hearAll(429, { "Retry-After": value });
    expect(feedback?.pauseFor).toBe(DAY);
    expect(warnings).toEqual([`retry-after: ${value} is more than 1d, taken as that`]);
  });

  it("takes a negative time for 0, with a warning", () => {
    const { feedback, warnings } = hearAll(429, { "Retry-After": "-30" });
    expect(feedback).toEqual({ retryAfter: 0, refused: true, source: "Retry-After" });
    expect(warnings).toEqual(["retry-after: -30 is negative, taken as 0"]);
  });

  it("reads retry-after-ms as the same more finely, and not against it", () => {
    expect(hear(429, { "retry-after-ms": "20" })?.pauseFor).toBe(20);
    expect(hear(429, { "retry-after-ms": "1234.5", "retry-after": "2" })?.pauseFor).toBe(1235);
    expect(hear(429, { "retry-after-ms": "20", "retry-after": "60" })?.pauseFor).toBe(60_000);
    expect(hear(429, { "retry-after-ms": "soon", "retry-after": "60" })?.pauseFor).toBe(60_000);
  });
});

describe("the server's clock", () => {
  const at = (seconds: number): string => new Date(NOW + seconds * 1000).toUTCString();
  const pause = (headers: Record<string, string>): number | undefined => hear(429, headers)?.pauseFor;

  it("counts dates and epoch times from the Date header", () => {
    expect(pause({ Date: at(-3600), "Retry-After": at(-3590) })).toBe(9000);
    expect(pause({ Date: at(3600), "Retry-After": at(3610) })).toBe(10_000);
    const reset = String(NOW / 1000 + 3610);
    expect(pause({ Date: at(3600), "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": reset })).toBe(10_000);
  });

  it("takes our clock for the part that Date does not tell", () => {
    expect(pause({ Date: at(0), "Retry-After": at(10) })).toBe(10_000);
    expect(pause({ Date: at(-1), "Retry-After": at(10) })).toBe(10_000);
    expect(pause({ Date: at(-2), "Retry-After": at(10) })).toBe(11_000);
  });

  it("adds the time that a cache has kept the response", () => {
    expect(pause({ Date: at(-3600), Age: "3600", "Retry-After": at(10) })).toBe(10_000);
    expect(pause({ Date: at(0), Age: "old", "Retry-After": at(10) })).toBe(10_000);
  });

  it("hears no quotas from a cache, which are those of somebody else", () => {
    const headers = { "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "9" };
    expect(hear(200, { ...headers, Age: "1" })).toBeUndefined();
    expect(hear(200, { ...headers, Age: "0" })).toMatchObject({ pauseFor: 9000 });
  });

  it("does without a Date that is none", () => {
    expect(pause({ Date: "today", "Retry-After": at(10) })).toBe(10_000);
  });
});

describe("another attempt", () => {
  it.each(["x-should-retry", "stripe-should-retry"])("is asked for or declined by %s", (header) => {
    expect(hear(409, { [header]: "true" })).toEqual({ retry: true, source: "status 409" });
    expect(hear(500, { [header]: "false" })).toEqual({ retry: false, source: "status 500" });
    expect(hear(500, { [header]: "maybe" })).toBeUndefined();
  });
});
