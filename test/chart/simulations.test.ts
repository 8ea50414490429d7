import { drawSimulations, type LimitSummary, type Simulation } from "spillway";
import { describe, expect, test } from "vitest";
import { elements, isWellFormed } from "../examples/svg.js";

const nothing = { offered: 0, sent: 0, refused: {}, wait: { p50: 0, p95: 0, p99: 0, max: 0 }, mostWaiting: 0 };
const limit = (count: number, per: number, buckets = 1): LimitSummary => ({
  ...nothing,
  buckets,
  rate: { limit: count, perMs: per },
  mostInPeriod: 0,
});
const simulated = (given: Partial<Simulation["timeline"]>, limits: Simulation["limits"] = {}): Simulation => ({
  calls: [],
  total: nothing,
  limits,
  span: 0,
  timeline: { from: 0, step: 1000, offered: [], sent: [], refused: [], waiting: [], ...given },
});
const path = (svg: string, name: string): string[] =>
  [...svg.matchAll(new RegExp(`<path class="${name}" d="([^"]*)"`, "g"))].map(([, d = ""]) => d);

describe("the picture of simulations", () => {
  test("is well-formed whatever there is to draw, and whatever policies are called", () => {
    const pictures = [
      drawSimulations({}),
      drawSimulations({ 'a <b> & "c"': simulated({}) }),
      drawSimulations({ one: simulated({ offered: [1], sent: [1], refused: [0], waiting: [0] }), two: simulated({}) }),
    ];
    for (const picture of pictures) {
      expect(isWellFormed(picture)).toBe(true);
      expect(picture).not.toMatch(/NaN|undefined|Infinity/);
    }
    expect(pictures[1]).toContain("a &lt;b&gt; &amp; &quot;c&quot;</text>");
  });

  test("shows rates in a unit that gives whole numbers, and the rate of a single bucket", () => {
    const timeline = { step: 60_000, offered: [2, 2], sent: [1, 1], refused: [0, 0], waiting: [1, 2] };
    const picture = drawSimulations({ slow: simulated(timeline, { api: limit(1, 60_000) }) });
    expect(picture.match(/calls per (\w+)/g)).toEqual(["calls per m", "calls per m"]);
    expect(picture).toContain(">1/m</text>");
    expect(elements(picture, 'path class="limit"')).toBe(1);
    for (const limits of [{ api: limit(1, 60_000, 2) }, { a: limit(1, 60_000), b: limit(1, 60_000) }]) {
      expect(drawSimulations({ slow: simulated(timeline, limits) })).not.toContain('class="limit" d');
    }
  });

  test("has one scale for all policies", () => {
    const of = (sent: readonly number[]): Simulation =>
      simulated({ offered: [4, 4], sent, refused: [0, 0], waiting: [0, 0] });
    const picture = drawSimulations({ one: of([4, 4]), two: of([2, 2]) });
    const heights = path(picture, "rate").map((d) => {
      const [floor = 0, value = 0] = [...d.matchAll(/[ML]\S+ ([\d.]+)/g)].map(([, y]) => Number(y));
      return floor - value;
    });
    expect(heights[0]).toBeCloseTo(2 * (heights[1] ?? 0), 1);
  });
});
