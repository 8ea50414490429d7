import fc from "fast-check";
import { expect, test } from "vitest";
import type { LimitOptions } from "../../dist/limits/options.js";
import { bucketOf, MS, S, T0 } from "../helpers/scripts.js";
import { GateModel, type ModelPolicy } from "./reference.js";

const rate = fc.record({ limit: fc.integer({ min: 1, max: 12 }), per: fc.constantFrom(7, 100, 1000, 3600, 60_000) });
const policies = fc.record({
  rate,
  burst: fc.integer({ min: 1, max: 6 }),
  rules: fc.array(rate, { maxLength: 3 }),
  lateness: fc.constantFrom(0, 1, 10, 250),
});

type Step =
  | { readonly op: "reserve"; readonly times: number }
  | { readonly op: "giveBack"; readonly which: number }
  | { readonly op: "pause"; readonly for: number }
  | { readonly op: "resume" };
const step = fc.oneof(
  { weight: 6, arbitrary: fc.record({ op: fc.constant("reserve" as const), times: fc.integer({ min: 1, max: 6 }) }) },
  { weight: 3, arbitrary: fc.record({ op: fc.constant("giveBack" as const), which: fc.nat(4) }) },
  { weight: 1, arbitrary: fc.record({ op: fc.constant("pause" as const), for: fc.integer({ min: 1, max: 20 * S }) }) },
  { weight: 1, arbitrary: fc.record({ op: fc.constant("resume" as const) }) },
);
// Mostly moments, sometimes long: calls crowd, and now and then the bucket runs dry.
const elapsed = fc.oneof(fc.constant(0), fc.nat(50 * MS), fc.nat(3 * S), fc.nat(100 * S));
const histories = fc.array(fc.tuple(elapsed, step), { minLength: 1, maxLength: 40 });

interface Done {
  readonly expected: number;
  readonly actual: Promise<number | "EXPIRED">;
  readonly atLeast: number;
}

test("any history: the slots of a reference model, in order, and no window too full", { timeout: 60_000 }, async () => {
  await fc.assert(fc.asyncProperty(policies, histories, check), { numRuns: 250 });
});

async function check(
  { rate: { limit, per }, burst, rules, lateness }: typeof policies extends fc.Arbitrary<infer T> ? T : never,
  history: readonly (readonly [number, Step])[],
): Promise<void> {
  const options: LimitOptions = {
    rate: { limit, per },
    burst,
    rules: rules.map((rule) => ({ limit: rule.limit, per: rule.per })),
    lateness: lateness === 0 ? 0 : `${lateness}ms`,
  };
  const policy: ModelPolicy = {
    limit,
    per: per * MS,
    late: lateness * MS,
    burst,
    rules: rules.map((rule) => ({ limit: rule.limit, per: rule.per * MS })),
  };
  const bucket = await bucketOf(options);
  const model = new GateModel(policy);
  const done: Done[] = [];
  const others: Promise<unknown>[] = [];
  let now = T0;
  let lastReserve = T0;
  for (const [pause, action] of history) {
    now += pause;
    if (action.op === "reserve") {
      lastReserve = now;
      for (let i = 0; i < action.times; i++) {
        const id = `c${done.length}`;
        const atLeast = Math.max(now, ...model.standing.map(({ slot }) => slot));
        done.push({ expected: model.reserve(now, id), actual: bucket.reserve(now, id), atLeast });
      }
    } else if (action.op === "giveBack") {
      const held = model.standing.at(-1 - action.which);
      if (held === undefined) continue;
      model.giveBack(held.id);
      others.push(bucket.giveBack(now, held.id, held.slot));
    } else if (action.op === "pause") {
      model.pause(now, action.for);
      others.push(bucket.control(now, "pause", action.for));
    } else {
      model.resume(now);
      others.push(bucket.control(now, "resume"));
    }
  }
  const slots = await Promise.all(done.map(({ actual }) => actual));
  await Promise.all(others);
  expect(slots).toEqual(done.map(({ expected }) => expected));
  for (const { expected, atLeast } of done) expect(expected).toBeGreaterThanOrEqual(atLeast);

  const starts = model.standing.map(({ slot }) => slot).toSorted((a, b) => a - b);
  expectWindow(starts, limit + burst - 1, policy.per, policy.late);
  for (const rule of policy.rules) expectWindow(starts, rule.limit, rule.per, policy.late);

  const { redis } = bucket;
  const longest = Math.max(0, ...rules.map((rule) => rule.limit));
  const reach = Math.max(0, ...policy.rules.map((rule) => rule.per + policy.late));
  const visible = starts.filter((slot) => slot >= lastReserve - reach).length;
  expect(await redis.zcard(bucket.key("log"))).toBeLessThanOrEqual(Math.max(longest, visible) + 1);
}

/** At most `most` starts in any window of `per`, wherever in [slot, slot + late] each one happens. */
function expectWindow(starts: readonly number[], most: number, per: number, late: number): void {
  for (const [i, start] of starts.entries()) {
    const next = starts[i + most];
    // The tightest case: this one as late as it may be, the other on time.
    if (next !== undefined) expect(next - (start + late)).toBeGreaterThanOrEqual(per);
  }
}
