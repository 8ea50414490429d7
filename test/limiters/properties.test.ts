import fc from "fast-check";
import { afterAll, describe, expect, test } from "vitest";
import type { Algorithm } from "../../dist/limiters/rule.js";
import { modelOf } from "./models.js";
import { type Example, examples, T0, type Taken } from "./promises.js";
import { type Op, quit, runRule } from "./rules.js";

afterAll(quit);

const MS = 1000;
// Mostly moments, sometimes long: calls crowd, and now and then the state runs off.
const elapsed = fc.oneof(fc.constant(0), fc.nat(3 * MS), fc.nat(400 * MS), fc.nat(90_000 * MS));
const costs = fc.oneof(
  { weight: 4, arbitrary: fc.constant(1) },
  { weight: 1, arbitrary: fc.integer({ min: 1, max: 9 }) },
);
const calls = fc.array(fc.tuple(elapsed, costs), { minLength: 1, maxLength: 40 });
const RUNS = { numRuns: 120 };

type Check = (example: Example, calls: readonly (readonly [number, number])[]) => Promise<void>;

function forAll(algorithm: Algorithm, check: Check): Promise<void> {
  return fc.assert(fc.asyncProperty(examples[algorithm], calls, check), RUNS);
}

/** The calls with their times, each after the one before. */
function timed(history: readonly (readonly [number, number])[]): Taken[] {
  let at = T0;
  return history.map(([pause, cost]) => ({ at: (at += pause), cost }));
}

const takesOf = (asked: readonly Taken[]): Op[] => asked.map(({ at, cost }) => ["take", at, cost]);

const sorted = (taken: readonly Taken[]): Taken[] => taken.toSorted((a, b) => a.at - b.at);

const algorithms = Object.keys(examples) as Algorithm[];
/** Those that judge a call at its own time, even when it is older than others. */
const exact: readonly Algorithm[] = ["leaky-bucket", "sliding-log"];
/** Those with windows of the calendar, which stay where they are when the clock is set back. */
const calendar: readonly Algorithm[] = ["fixed-window", "sliding-window-counter", "sliding-window"];

describe.each(algorithms)("%s", (algorithm) => {
  test("keeps its promise, and its state within bounds", () =>
    forAll(algorithm, async (example, history) => {
      const asked = timed(history);
      const ops = asked.flatMap(({ at, cost }): Op[] => [["take", at, cost], ["size"]]);
      const replies = await runRule(example.options, ops);
      const taken = asked.filter((_call, i) => replies[2 * i]?.[0] === 1);
      expect(example.broken(taken)).toBeUndefined();
      for (const [entries = 0, bytes = 0] of replies.filter((_reply, i) => i % 2 === 1)) {
        expect(entries).toBeLessThanOrEqual(example.entries);
        expect(bytes).toBeLessThanOrEqual(example.bytes);
      }
    }));

  test("lets in what its definition lets in, and says when that will be", () =>
    forAll(algorithm, async (example, history) => {
      const model = modelOf(example.options);
      const asked = timed(history);
      const replies = await runRule(example.options, takesOf(asked));
      for (const [i, { at, cost }] of asked.entries()) {
        const [allowed, earliest = 0] = replies[i] ?? [];
        expect(allowed === 1).toBe(model.fits(at, cost));
        if (allowed === 1) model.count(at, cost);
        else if (earliest < Infinity) {
          expect(model.fits(earliest, cost)).toBe(true);
          expect(model.fits(earliest - 1, cost)).toBe(false);
        }
      }
    }));

  test("a wait is as long as it has to be, and the same at every moment of it", () =>
    forAll(algorithm, async (example, history) => {
      const asked = timed(history);
      const waits = await runRule(
        example.options,
        asked.flatMap(({ at, cost }): Op[] => [
          ["take", at, cost],
          ["earliest", at, cost],
        ]),
      );
      const end = asked.at(-1);
      const earliest = waits.at(-1)?.[0];
      if (end === undefined || earliest === undefined) throw new Error("Expected a reply");
      if (end.cost > example.most) {
        expect(earliest).toBe(Infinity);
        return;
      }
      expect(earliest - end.at).toBeLessThanOrEqual(example.reach);
      const moments = [end.at, Math.floor((end.at + earliest) / 2), earliest - 1, earliest, earliest + 1];
      const again = await runRule(example.options, [
        ...takesOf(asked),
        ...moments.map((at): Op => ["earliest", Math.max(at, end.at), end.cost]),
        ["take", earliest, end.cost],
      ]);
      const times = again.slice(asked.length, -1).map(([time]) => time);
      expect(times).toEqual(moments.map((at) => Math.max(earliest, at)));
      expect(again.at(-1)?.[0]).toBe(1);
    }));

  test("what remains fits, one more does not, and after the reset all of it does", () =>
    forAll(algorithm, async (example, history) => {
      const asked = timed(history);
      const now = asked.at(-1)?.at ?? T0;
      const takes = takesOf(asked);
      const status = await runRule(example.options, [...takes, ["status", now]]);
      const [remaining = -1, reset = 0] = status.at(-1) ?? [];
      const until = Math.max(...status.slice(0, -1).map(([, , goes]) => goes ?? 0));
      const [fits, more, all, gone] = (
        await runRule(example.options, [
          ...takes,
          ["earliest", now, remaining],
          ["earliest", now, remaining + 1],
          ["status", reset],
          ["status", Math.max(now, until)],
        ])
      ).slice(-4);
      if (remaining > 0) expect(fits?.[0]).toBe(now);
      expect(more?.[0]).toBeGreaterThan(now);
      expect(all?.[0]).toBe(example.most);
      // The key may go as soon as it expires.
      expect(gone?.[0]).toBe(example.most);
    }));

  test("reserved slots keep the promise, whatever is given back", () => {
    const step = fc.tuple(elapsed, costs, fc.option(fc.nat(3)));
    const histories = fc.array(step, { minLength: 1, maxLength: 40 });
    return fc.assert(
      fc.asyncProperty(examples[algorithm], histories, async (example, history) => {
        let now = T0;
        const ops = history.flatMap(([pause, cost, undone]): Op[] => {
          // Slower than the demand, so that slots lie ahead.
          now += Math.floor(pause / 4);
          return undone === null ? [["reserve", now, cost]] : [["reserve", now, cost], ["undo", undone]]; // prettier-ignore
        });
        const replies = await runRule(example.options, ops);
        const standing: Taken[] = [];
        const kept: Taken[] = [];
        let newest = 0;
        for (const [i, op] of ops.entries()) {
          const [slot = 0, taken = 0] = replies[i] ?? [];
          if (op[0] === "reserve") expect(slot).toBeGreaterThanOrEqual(op[1]);
          if (op[0] === "reserve" && slot < Infinity) {
            standing.push({ at: slot, cost: op[2] });
            kept.push({ at: slot, cost: op[2] });
            newest = Math.max(newest, slot);
          }
          if (op[0] !== "undo" || slot < 0) continue;
          standing.splice(standing.length - 1 - op[1], 1);
          const place = kept.findLastIndex(({ at, cost }) => at === slot && cost === taken);
          if (slot === newest) kept.splice(place, 1);
        }
        expect(example.broken(sorted(standing))).toBeUndefined();

        // Nothing may start earlier than if what was given back had never been reserved. A token bucket keeps all but the
        // newest, and the phase of its refills with it.
        const counted = algorithm === "token-bucket" ? kept : standing;
        const earliest = async (done: readonly Op[]): Promise<number> =>
          (await runRule(example.options, [...done, ["earliest", now, 1]])).at(-1)?.[0] ?? Number.NaN;
        const least = await earliest(counted.map(({ at, cost }): Op => ["count", at, cost]));
        expect(await earliest(ops)).toBeGreaterThanOrEqual(least);
      }),
      RUNS,
    );
  });

  test("a slot that is given back before another one is taken can be had again", () =>
    forAll(algorithm, async (example, history) => {
      const asked = timed(history);
      const now = asked.at(-1)?.at ?? T0;
      const takes = takesOf(asked);
      const ops: Op[] = [...takes, ["reserve", now, example.most], ["undo", 0], ["earliest", now, example.most]];
      const [slot, , again] = (await runRule(example.options, ops)).slice(-3);
      expect(again?.[0]).toBe(slot?.[0]);
    }));

  test("refused calls that count keep the promise, and the wait within bounds", () =>
    forAll(algorithm, async (example, history) => {
      const asked = timed(history);
      const ops = asked.flatMap(({ at, cost }): Op[] => [["take", at, cost], ["earliest", at, 1], ["size"]]);
      const first = await runRule(example.options, ops);
      const refused = asked.map((_call, i) => first[3 * i]?.[0] === 0);
      // Counting a refused call changes what comes after it: only up to the first one is known here.
      const known = asked.slice(0, refused.indexOf(true) + 1 || asked.length);
      const flood = known.at(-1) ?? { at: T0, cost: 1 };
      const replies = await runRule(example.options, [
        ...known.map(({ at, cost }): Op => ["take", at, cost]),
        ...Array.from({ length: 20 }, (): Op => ["refuse", flood.at, flood.cost]),
        ["earliest", flood.at, 1],
        ["size"],
      ]);
      const [before] = first[3 * (known.length - 1) + 1] ?? [];
      const [[after = 0] = [], [entries = 0, bytes = 0] = []] = replies.slice(-2);
      expect(after).toBeGreaterThanOrEqual(before ?? 0);
      expect(after - flood.at).toBeLessThanOrEqual(example.reach);
      expect(entries).toBeLessThanOrEqual(example.entries);
      expect(bytes).toBeLessThanOrEqual(example.bytes);
    }));

  test("a clock that is set back leaves what was used, and a wait no longer than any other", () =>
    forAll(algorithm, async (example, history) => {
      const asked = timed(history);
      const last = asked.at(-1)?.at ?? T0;
      const back = T0 - 3_600_000 * MS;
      const takes = takesOf(asked);
      const replies = await runRule(example.options, [
        ...takes,
        ["earliest", last, 1],
        ["rewind", back],
        ["earliest", back, 1],
      ]);
      const [before = 0, newest = 0, after = 0] = replies.slice(-3).map(([reply]) => reply);
      expect(after - back).toBeLessThanOrEqual(example.reach);
      if (!calendar.includes(algorithm)) {
        // From the last call on that counted.
        const [then] = (await runRule(example.options, [...takes, ["earliest", newest, 1]])).at(-1) ?? [];
        if (newest > 0) expect(after - back).toBe((then ?? 0) - newest);
        expect(before).toBeGreaterThanOrEqual(last);
      }
    }));
});

describe.each(exact)("%s", (algorithm) => {
  test("keeps its promise for calls in any order", () => {
    const span = fc.constantFrom(30, 3000, 200_000);
    const histories = span.chain((ms) => fc.array(fc.tuple(fc.nat(ms * MS), costs), { minLength: 1, maxLength: 40 }));
    return fc.assert(
      fc.asyncProperty(examples[algorithm], histories, async (example, history) => {
        const asked = history.map(([after, cost]) => ({ at: T0 + after, cost }));
        const replies = await runRule(example.options, takesOf(asked));
        expect(example.broken(sorted(asked.filter((_call, i) => replies[i]?.[0] === 1)))).toBeUndefined();
      }),
      RUNS,
    );
  });
});
