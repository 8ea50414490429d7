import { expect, test } from "vitest";
import { TimelineBuilder } from "../../dist/simulate/timeline.js";

const MS = 1000;
const build = (fill: (line: TimelineBuilder) => void) => {
  const line = new TimelineBuilder();
  fill(line);
  return line.build((micros) => micros / MS);
};

test("counts what happens in each step, and how many wait on average", () => {
  const line = build((one) => {
    one.offered(5 * MS);
    one.offered(5.5 * MS);
    one.sent(5 * MS, 5 * MS);
    one.sent(5.5 * MS, 8.25 * MS);
    one.refused(5.5 * MS, 5.75 * MS);
  });
  expect(line).toEqual({
    from: 5,
    step: 1,
    offered: [2, 0, 0, 0],
    sent: [1, 0, 0, 1],
    refused: [1, 0, 0, 0],
    waiting: [0.75, 1, 1, 0.25],
  });
});

test("doubles its steps when there are too many, and loses nothing", () => {
  const waits = Array.from({ length: 300 }, (_, i) => [i * 7 * MS, (i * 7 + (i % 50) * 100) * MS] as const);
  const line = build((one) => {
    for (const [from] of waits) one.offered(from);
    // In any order.
    for (const [from, to] of waits.toReversed()) one.sent(from, to);
  });
  const sum = (list: readonly number[]): number => list.reduce((all, one) => all + one, 0);
  expect(line.step).toBe(16);
  expect(line.offered.length).toBeLessThanOrEqual(512);
  expect([sum(line.offered), sum(line.sent)]).toEqual([300, 300]);
  const coarse = waits.map(([from, to]) => [from / MS, to / MS] as const);
  for (const [i, waiting] of line.waiting.entries()) {
    const overlap = ([from, to]: readonly [number, number]): number =>
      Math.max(0, Math.min(to, (i + 1) * 16) - Math.max(from, i * 16));
    expect(waiting).toBeCloseTo(sum(coarse.map(overlap)) / 16, 9);
  }
});

test("nothing has no steps", () => {
  expect(build(() => {})).toEqual({ from: 0, step: 1, offered: [], sent: [], refused: [], waiting: [] });
});
