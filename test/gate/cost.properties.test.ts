import fc from "fast-check";
import { expect, test } from "vitest";
import { bucketOf, MS, S, T0 } from "../helpers/scripts.js";
import { GateModel, type Held, type ModelPolicy } from "./reference.js";

const counts = fc.constantFrom("calls" as const, "cost" as const);
const per = fc.constantFrom(100, 1000, 3600, 60_000);
const policies = fc.record({
  rate: fc.record({ limit: fc.integer({ min: 1, max: 60 }), per, counts }),
  burst: fc.integer({ min: 1, max: 12 }),
  rules: fc.array(fc.record({ limit: fc.integer({ min: 1, max: 40 }), per, counts }), { minLength: 1, maxLength: 3 }),
  lateness: fc.constantFrom(0, 10, 250),
});
type Options = typeof policies extends fc.Arbitrary<infer T> ? T : never;

// Some weigh more than a window holds.
const cost = fc.oneof(fc.integer({ min: 1, max: 8 }), fc.integer({ min: 1, max: 50 }));
type Step =
  | { readonly op: "reserve"; readonly costs: readonly number[] }
  | { readonly op: "giveBack" | "settle"; readonly which: number; readonly cost: number }
  | { readonly op: "pause"; readonly for: number }
  | { readonly op: "resume" };
const nth = fc.nat(6);
const steps = fc.oneof<fc.WeightedArbitrary<Step>[]>(
  {
    weight: 6,
    arbitrary: fc.record({
      op: fc.constant("reserve" as const),
      costs: fc.array(cost, { minLength: 1, maxLength: 5 }),
    }),
  },
  { weight: 2, arbitrary: fc.record({ op: fc.constant("giveBack" as const), which: nth, cost: fc.constant(0) }) },
  {
    weight: 5,
    arbitrary: fc.record({ op: fc.constant("settle" as const), which: nth, cost: fc.oneof(cost, fc.constant(0)) }),
  },
  { weight: 1, arbitrary: fc.record({ op: fc.constant("pause" as const), for: fc.integer({ min: 1, max: 20 * S }) }) },
  { weight: 1, arbitrary: fc.record({ op: fc.constant("resume" as const) }) },
);
const elapsed = fc.oneof(fc.constant(0), fc.nat(50 * MS), fc.nat(3 * S), fc.nat(100 * S));
const histories = fc.array(fc.tuple(elapsed, steps), { minLength: 1, maxLength: 40 });

test("any history of costs: the slots of a reference model", { timeout: 60_000 }, async () => {
  await fc.assert(fc.asyncProperty(policies, histories, check), { numRuns: 250 });
});

async function check(
  { rate, burst, rules, lateness }: Options,
  history: readonly (readonly [number, Step])[],
): Promise<void> {
  const bucket = await bucketOf({ rate, burst, rules, lateness: lateness === 0 ? 0 : `${lateness}ms` });
  const policy: ModelPolicy = {
    limit: rate.limit,
    per: rate.per * MS,
    late: lateness * MS,
    burst,
    weighed: rate.counts === "cost",
    rules: rules.map((rule) => ({ limit: rule.limit, per: rule.per * MS, weighed: rule.counts === "cost" })),
  };
  const model = new GateModel(policy);
  const expected: number[] = [];
  const slots: Promise<number | "EXPIRED">[] = [];
  const others: Promise<unknown>[] = [];
  /** Settled calls have started: they are not given back. */
  const settled = new Set<string>();
  let now = T0;
  let reservedAt = T0;
  for (const [pause, step] of history) {
    now += pause;
    if (step.op === "reserve") {
      reservedAt = now;
      for (const weight of step.costs) {
        const id = `c${slots.length}`;
        expected.push(model.reserve(now, id, weight));
        slots.push(bucket.reserve(now, id, "", weight));
      }
    } else if (step.op === "pause") {
      model.pause(now, step.for);
      others.push(bucket.control(now, "pause", step.for));
    } else if (step.op === "resume") {
      model.resume(now);
      others.push(bucket.control(now, "resume"));
    } else {
      const held = model.standing.at(-1 - step.which);
      // One that has cost nothing is forgotten.
      if (held === undefined || held.cost === 0) continue;
      if (step.op === "giveBack") {
        if (settled.has(held.id)) continue;
        model.giveBack(held.id);
        others.push(bucket.giveBack(now, held.id, held.slot));
      } else if (isSeen(held, policy, now)) {
        settled.add(held.id);
        model.settle(now, held.id, step.cost);
        others.push(bucket.settle(now, held.id, held.slot, held.cost, step.cost));
      }
    }
  }
  expect(await Promise.all(slots)).toEqual(expected);
  await Promise.all(others);
  if (settled.size === 0) expectWindows(model.standing, policy);

  const log = await bucket.redis.zcard(bucket.key("costs"));
  const visible = model.standing.filter(({ slot }) => slot >= reservedAt - reachOf(policy)).length;
  // Each start forgets two: at most as many as there ever were are still to be forgotten.
  expect(log).toBeLessThanOrEqual(policy.rules.some((rule) => rule.weighed) ? slots.length : 0);
  if (settled.size === 0 && log > 0) expect(log).toBeGreaterThanOrEqual(Math.min(1, visible));
}

const reachOf = ({ rules, late }: ModelPolicy): number => Math.max(...rules.map((rule) => rule.per + late));

/** The gate forgets what no window sees; correcting that changes nothing but the debt of a weighed rate. */
const isSeen = ({ slot }: Held, policy: ModelPolicy, now: number): boolean => slot >= now - reachOf(policy);

/** No window holds too much, wherever in [slot, slot + late] each start happens; nothing is beside what fills it. */
function expectWindows(standing: readonly Held[], { rules, late }: ModelPolicy): void {
  const starts = standing.toSorted((a, b) => a.slot - b.slot);
  for (const rule of rules) {
    for (const [i, first] of starts.entries()) {
      // The tightest case: this one as late as it may be, the others on time.
      const within = starts.slice(i).filter(({ slot }) => slot < first.slot + late + rule.per);
      const weight = within.reduce((sum, held) => sum + (rule.weighed === true ? held.cost : 1), 0);
      if (within.length > 1) expect(weight).toBeLessThanOrEqual(rule.limit);
    }
  }
}
