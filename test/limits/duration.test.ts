import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { formatDuration, MAX_DURATION_MS, parseDuration } from "../../dist/limits/duration.js";

const DAY = 86_400_000;

describe("parseDuration", () => {
  it.each<[unknown, number]>([
    ["250ms", 250],
    ["10s", 10_000],
    ["5m", 300_000],
    ["1h", 3_600_000],
    ["7d", 7 * DAY],
    ["366d", 366 * DAY],
    ["1.5s", 1500],
    ["0.5d", DAY / 2],
    ["1m30s", 90_000],
    ["1h30m15s", 5_415_000],
    ["1d2h3m4s5ms", DAY + 2 * 3_600_000 + 3 * 60_000 + 4000 + 5],
    ["1d5ms", DAY + 5],
    ["90s", 90_000],
    [1, 1],
    [1500, 1500],
  ])("reads %j as %d ms", (value, ms) => {
    expect(parseDuration(value, "x")).toBe(ms);
  });

  it("rounds a fraction of a ms up, and takes binary dust for none", () => {
    expect(parseDuration(1.25, "x")).toBe(2);
    expect(parseDuration("1.0001s", "x")).toBe(1001);
    expect(2.007 * 1000).toBeGreaterThan(2007);
    expect(parseDuration("2.007s", "x")).toBe(2007);
    expect(1.001 * 1000).toBeLessThan(1001);
    expect(parseDuration("1.001s", "x")).toBe(1001);
  });

  it.each<[unknown]>([
    ["5 parsecs"],
    ["5x"],
    ["5"],
    [""],
    ["s"],
    ["5 s"],
    [" 5s"],
    ["5s "],
    ["5S"],
    ["+5s"],
    ["-5s"],
    ["1e3s"],
    [".5s"],
    ["5.s"],
    ["1_000ms"],
    ["30s1m"],
    ["1s1s"],
    ["Infinitys"],
    ["0s"],
    ["0.5ms"],
    ["367d"],
    [`${"9".repeat(400)}d`],
    [0],
    [-0],
    [-1],
    [0.5],
    [Number.NaN],
    [Number.POSITIVE_INFINITY],
    [MAX_DURATION_MS + 1],
    [10n],
    [true],
    [null],
    [undefined],
    [{}],
    [[]],
    [["5s"]],
    [new Date(5)],
    [() => 5],
    [Symbol("5s")],
  ])("refuses %o and names the option, the expectation and the value", (value) => {
    expect(() => parseDuration(value, "a.com.maxWait")).toThrow(
      expect.objectContaining({
        code: "ERR_INVALID_LIMIT",
        option: "a.com.maxWait",
        expected: expect.stringContaining("duration"),
        value,
      }),
    );
  });

  it("keeps to the bounds that it is given, which count as well", () => {
    const bounds = { min: 0, max: 60_000 };
    expect(parseDuration(0, "x", bounds)).toBe(0);
    expect(parseDuration("0ms", "x", bounds)).toBe(0);
    expect(parseDuration("60s", "x", bounds)).toBe(60_000);
    expect(() => parseDuration("61s", "x", bounds)).toThrow('Expected `x` to be a duration from 0ms to 1m, got "61s"');
    expect(() => parseDuration("soon", "x", bounds)).toThrow('or 0, got "soon"');
    expect(() => parseDuration(-1, "x", bounds)).toThrow(/from 0ms/);
  });
});

describe("formatDuration", () => {
  it.each<[number, string]>([
    [0, "0ms"],
    [1, "1ms"],
    [1000, "1s"],
    [90_000, "1m30s"],
    [MAX_DURATION_MS, "366d"],
    [DAY + 1, "1d1ms"],
  ])("writes %d ms as %s", (ms, text) => {
    expect(formatDuration(ms)).toBe(text);
  });

  it("is read back as the same number of ms", () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: MAX_DURATION_MS }), (ms) => {
        expect(parseDuration(formatDuration(ms), "x")).toBe(ms);
      }),
    );
  });
});
