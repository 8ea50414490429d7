import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { formatDuration } from "../../dist/limits/duration.js";
import { parseRate } from "../../dist/limits/rate.js";

describe("parseRate", () => {
  it.each<[unknown, number, number]>([
    ["10/s", 10, 1000],
    ["600/m", 600, 60_000],
    ["200/h", 200, 3_600_000],
    ["800/d", 800, 86_400_000],
    ["1/ms", 1, 1],
    ["1000/ms", 1000, 1],
    ["5/10s", 5, 10_000],
    ["100/15m", 100, 900_000],
    ["1/250ms", 1, 250],
    ["1/1.5s", 1, 1500],
    ["1/1m30s", 1, 90_000],
    ["1/366d", 1, 366 * 86_400_000],
    ["1000000/s", 1_000_000, 1000],
    [{ limit: 5, per: "10s" }, 5, 10_000],
    [{ limit: 5, per: 250 }, 5, 250],
  ])("reads %j", (value, limit, perMs) => {
    const rate = parseRate(value, "x");
    expect(rate).toEqual({ limit, perMs });
    expect(rate).toSatisfy(Object.isFrozen);
  });

  it.each<[unknown, string]>([
    ["", "x"],
    ["10", "x"],
    ["10/", "x"],
    ["/s", "x"],
    ["10/x", "x"],
    ["10/sec", "x"],
    ["10/10", "x"],
    ["10 / s", "x"],
    ["10/s5ms", "x"],
    ["10/s/s", "x"],
    ["10 per second", "x"],
    ["1.5/s", "x"],
    ["1e3/s", "x"],
    ["-1/s", "x"],
    ["+1/s", "x"],
    ["0/s", "x"],
    ["1000001/m", "x"],
    [`${"9".repeat(400)}/s`, "x"],
    ["1/0s", "x"],
    ["1/0.5ms", "x"],
    ["1/367d", "x"],
    ["1001/ms", "x"],
    ["1000000/999ms", "x"],
    ["10/constructor", "x"],
    [{ limit: 1_000_000, per: 999 }, "x"],
    [{ limit: 0, per: "1s" }, "x.limit"],
    [{ limit: 1.5, per: "1s" }, "x.limit"],
    [{ limit: "5", per: "1s" }, "x.limit"],
    [{ limit: 1_000_001, per: "1d" }, "x.limit"],
    [{ limit: Number.NaN, per: "1s" }, "x.limit"],
    [{ limit: Number.POSITIVE_INFINITY, per: "1s" }, "x.limit"],
    [{ per: "1s" }, "x.limit"],
    [{ limit: 5 }, "x.per"],
    [{ limit: 5, per: "s" }, "x.per"],
    [{ limit: 5, per: 0 }, "x.per"],
    [{ limit: 5, per: "1s", burst: 2 }, "x.burst"],
    [{}, "x.limit"],
    [["10/s"], "x"],
    [10, "x"],
    [Number.NaN, "x"],
    [true, "x"],
    [null, "x"],
    [undefined, "x"],
    [() => "10/s", "x"],
  ])("refuses %o", (value, option) => {
    expect(() => parseRate(value, "x")).toThrow(expect.objectContaining({ code: "ERR_INVALID_LIMIT", option }));
  });

  it.each([[10], [null], [["10/s"]]])("says what a rate looks like to somebody who wrote %j", (value) => {
    expect(() => parseRate(value, "x")).toThrow('Expected `x` to be a rate such as "10/s"');
  });

  it("says which part of a rate is wrong", () => {
    expect(() => parseRate("10/parsec", "api.github.com.rate")).toThrow(
      'Expected `api.github.com.rate` to be a rate such as "10/s", "600/m", "5/10s", or { limit: 5, per: "10s" }, ' +
        'with 1 to 1000000 starts in 1ms to 366d, got "10/parsec"',
    );
    expect(() => parseRate("2000/ms", "x")).toThrow(
      'Expected `x` to be a rate of at most 1000000 a second, got "2000/ms"',
    );
  });

  it("reads text and object as the same rate", () => {
    const limits = fc.integer({ min: 1, max: 1000 });
    fc.assert(
      fc.property(limits, fc.integer({ min: 1, max: 31_622_400_000 }), (limit, per) => {
        const expected = { limit, perMs: per };
        expect(parseRate({ limit, per }, "x")).toEqual(expected);
        expect(parseRate(`${limit}/${formatDuration(per)}`, "x")).toEqual(expected);
      }),
    );
  });
});
