import fc from "fast-check";
import type { Arrival, LimitOptions } from "spillway";
import { expect, test } from "vitest";
import { replay } from "./replayed.js";

const gaps = fc.constantFrom(0, 0, 0, 0.001, 1, 40, 99.9, 100, 350, 1000, 5000);
const histories = fc.array(
  fc.record({
    gap: gaps,
    priority: fc.constantFrom("normal" as const, "normal" as const, "high" as const, "low" as const),
    maxWait: fc.constantFrom(undefined, 100, 1000, 60_000),
    duration: fc.constantFrom(0, 10, 800),
  }),
  { minLength: 1, maxLength: 60 },
);
const policies = fc.record(
  {
    rate: fc.constantFrom("10/s" as const, "3/s" as const, "7/250ms" as const),
    burst: fc.constantFrom(1, 4),
    rules: fc.constantFrom([], ["12/2s" as const]),
    capacity: fc.constantFrom(1, 5, 1000),
    overflow: fc.constantFrom("reject" as const, "drop-oldest" as const),
    concurrency: fc.constantFrom(1, 3),
    lateness: fc.constantFrom(0, 10),
  },
  { requiredKeys: ["rate", "burst", "rules", "capacity", "overflow", "lateness"] },
);

function arrivalsOf(
  history: readonly {
    gap: number;
    priority: "high" | "normal" | "low";
    maxWait: number | undefined;
    duration: number;
  }[],
): Arrival[] {
  let micros = 1_000_000_000;
  return history.map(({ gap, maxWait, ...rest }) => {
    micros += Math.round(gap * 1000);
    return { ...rest, at: micros / 1000, ...(maxWait !== undefined && { maxWait }) };
  });
}

/** The most of these times (ascending, ms) in any window of that length. */
function most(times: readonly number[], window: number): number {
  const micros = times.map((time) => Math.round(time * 1000));
  return Math.max(
    0,
    ...micros.map((from) => micros.filter((time) => time >= from && time < from + window * 1000).length),
  );
}

test("every call ends once, none starts before it came or after its wait is over, and no window holds too many", async () => {
  await fc.assert(
    fc.asyncProperty(policies, histories, async (policy, history) => {
      const arrivals = arrivalsOf(history);
      const { concurrency, ...options } = policy;
      const limit: LimitOptions = { ...options, ...(concurrency !== undefined && { concurrency }) };
      const { calls, total, limits, timeline, span } = await replay(limit, arrivals);
      expect(calls.map(({ index }) => index)).toEqual(arrivals.map((_, i) => i));

      const sent = calls.filter(({ outcome }) => outcome === "sent");
      const refused = Object.values(total.refused).reduce((sum, n) => sum + n, 0);
      expect([total.offered, total.sent]).toEqual([arrivals.length, sent.length]);
      expect(refused).toBe(arrivals.length - sent.length);
      expect(total.mostWaiting).toBeLessThanOrEqual(policy.capacity);
      for (const { index, at, startedAt, waited, outcome } of calls) {
        const { maxWait = 300_000 } = arrivals[index] ?? { at };
        expect(waited).toBeGreaterThanOrEqual(0);
        expect(waited).toBeLessThanOrEqual(Number(maxWait));
        if (outcome === "ERR_WAIT_EXCEEDED") expect(waited).toBe(maxWait);
        if (startedAt !== undefined) expect(startedAt - at).toBeCloseTo(waited, 3);
      }

      const starts = sent.map(({ startedAt }) => startedAt ?? 0).toSorted((a, b) => a - b);
      const [count, per] = { "10/s": [10, 1000], "3/s": [3, 1000], "7/250ms": [7, 250] }[policy.rate] as [
        number,
        number,
      ];
      // Without lateness the average is exact, and one more may fall into a window by a rounded µs.
      const bound = count + policy.burst - 1 + (policy.lateness === 0 ? 1 : 0);
      expect(most(starts, per)).toBeLessThanOrEqual(bound);
      expect(limits["api"]?.mostInPeriod).toBe(most(starts, per));
      if (policy.rules.length > 0) expect(most(starts, 2000)).toBeLessThanOrEqual(12);
      if (concurrency !== undefined) {
        const flights = sent.map(({ index, startedAt = 0 }) => [
          startedAt,
          startedAt + Number(arrivals[index]?.duration),
        ]);
        for (const [from = 0] of flights) {
          const others = flights.filter(([start = 0, end = 0]) => start <= from && end > from + 0.0005);
          expect(others.length).toBeLessThanOrEqual(concurrency);
        }
      }

      const sum = (list: readonly number[]): number => list.reduce((all, one) => all + one, 0);
      expect([sum(timeline.offered), sum(timeline.sent), sum(timeline.refused)]).toEqual([
        arrivals.length,
        sent.length,
        refused,
      ]);
      expect(sum(timeline.waiting) * timeline.step).toBeCloseTo(sum(calls.map(({ waited }) => waited)), 2);
      expect(timeline.step * timeline.offered.length).toBeGreaterThanOrEqual(span);
    }),
    { numRuns: 60 },
  );
}, 60_000);

test("first in, first out: each starts when it has come and the one before it is far enough", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(gaps, { minLength: 1, maxLength: 60 }), async (history) => {
      const arrivals = arrivalsOf(history.map((gap) => ({ gap, priority: "normal", maxWait: undefined, duration: 0 })));
      const { calls } = await replay({ rate: "10/s" }, arrivals);
      let free = 0;
      const expected = arrivals.map(({ at }) => {
        const start = Math.max(Number(at), free);
        // A period and the lateness, for ten calls.
        free = start + 101;
        return start;
      });
      for (const [i, call] of calls.entries()) expect(call.startedAt).toBeCloseTo(expected[i] ?? 0, 3);
    }),
    { numRuns: 30 },
  );
}, 60_000);
