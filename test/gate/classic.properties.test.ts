import fc from "fast-check";
import { describe, expect, test, vi } from "vitest";
import { type Bucket, bucketOf, MINUTE, MS, S, T0 } from "../helpers/scripts.js";

vi.setConfig({ testTimeout: 60_000 });

const PER = 10 * S;
const windowOf = (time: number): number => Math.floor(time / PER);
/** Most starts from one to another, both included; Infinity where nothing is promised. */
const RULES = [
  {
    rule: { algorithm: "fixed-window", limit: 3, per: "10s" },
    most: (first: number, last: number) => 3 * (windowOf(last) - windowOf(first) + 1),
  },
  {
    rule: { algorithm: "token-bucket", max: 3, refillTime: "10s", refillAmount: 2 },
    most: (first: number, last: number) => 3 + 2 * (Math.floor((last - first) / PER) + 1),
  },
  {
    rule: { algorithm: "leaky-bucket", rate: "3/10s", burst: 3 },
    most: (first: number, last: number) => 3 + (3 * (last - first)) / PER,
  },
  {
    rule: { algorithm: "sliding-window-counter", limit: 3, per: "10s", buckets: 10 },
    most: (first: number, last: number) => (last - first < 9 * S ? 3 : Infinity),
  },
] as const;

const ops = fc.oneof(
  { weight: 5, arbitrary: fc.constant({ op: "reserve" } as const) },
  { weight: 2, arbitrary: fc.record({ op: fc.constantFrom("giveBack", "next"), which: fc.nat(20) }) },
  { weight: 1, arbitrary: fc.record({ op: fc.constant("pause"), for: fc.integer({ min: S, max: 40 * S }) }) },
  { weight: 1, arbitrary: fc.constant({ op: "resume" } as const) },
  { weight: 1, arbitrary: fc.record({ op: fc.constant("rate"), limit: fc.constantFrom(1, 10, 1000) }) },
);
type Op = typeof ops extends fc.Arbitrary<infer T> ? T : never;
type History = readonly (readonly [number, Op])[];
const elapsed = fc.oneof(fc.constant(0), fc.nat(S), fc.nat(8 * S));
const histories = fc.array(fc.tuple(elapsed, ops), { minLength: 5, maxLength: 50 });

/** Who holds slots: each starts in its slot, and confirms one that lay far ahead shortly before. */
class Holders {
  readonly starts: number[] = [];
  now = T0;
  readonly #bucket: Bucket;
  readonly #held = new Map<string, { slot: number; sure: boolean }>();

  constructor(bucket: Bucket) {
    this.#bucket = bucket;
  }

  hold(id: string, slot: number, confirmed = false): void {
    this.#held.set(id, { slot, sure: confirmed || slot - this.now <= 25 * MS });
  }

  async advance(to: number): Promise<void> {
    const wake = ({ slot, sure }: { slot: number; sure: boolean }): number => (sure ? slot : slot - 40 * MS);
    for (;;) {
      const [next] = [...this.#held].toSorted(([, a], [, b]) => wake(a) - wake(b));
      if (next === undefined || wake(next[1]) > to) break;
      const [id, { slot, sure }] = next;
      this.now = Math.max(this.now, wake(next[1]));
      if (sure) {
        this.#held.delete(id);
        this.starts.push(slot);
      } else {
        const given = await this.#bucket.slot(this.now, id, "confirm", slot);
        this.hold(id, given, given === slot);
      }
    }
    this.now = Math.max(this.now, to);
  }

  async act(op: Op, i: number): Promise<void> {
    const { now } = this;
    const bucket = this.#bucket;
    if (op.op === "reserve") return this.hold(`c${i}`, Number(await bucket.reserve(now, `c${i}`)));
    if (op.op === "rate") return bucket.set(now, { limit: op.limit, per: S });
    if (op.op === "pause") return void (await bucket.control(now, "pause", op.for));
    if (op.op === "resume") return void (await bucket.control(now, "resume"));
    const held = [...this.#held];
    const [id, one] = held[op.which % held.length] ?? [];
    if (id === undefined || one === undefined) return;
    this.#held.delete(id);
    if (op.op === "giveBack") await bucket.giveBack(now, id, one.slot);
    else this.hold(id, await bucket.slot(now, id, "next", one.slot));
  }
}

async function check({ rule, most }: (typeof RULES)[number], burst: number, history: History): Promise<void> {
  const bucket = await bucketOf({ rate: "1000/s", lateness: 0, burst, rules: [rule] });
  const holders = new Holders(bucket);
  for (const [i, [wait, op]] of history.entries()) {
    await holders.advance(holders.now + wait);
    await holders.act(op, i);
  }
  await holders.advance(holders.now + 10 * MINUTE);
  const starts = holders.starts.toSorted((a, b) => a - b);
  for (const [i, first] of starts.entries()) {
    for (const [more, last] of starts.slice(i).entries()) expect(more + 1).toBeLessThanOrEqual(most(first, last));
  }
}

describe.each(RULES)("$rule.algorithm", (example) => {
  test("given back, paused, resumed: lets through no more than it promises", async () => {
    const bursts = fc.integer({ min: 1, max: 3 });
    await fc.assert(fc.asyncProperty(fc.constant(example), bursts, histories, check), { numRuns: 60 });
  });
});
