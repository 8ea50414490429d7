import { describe, expect, test } from "vitest";
import { type Bucket, bucketOf, HOUR, listen, MINUTE, MS, S, T0 } from "../helpers/scripts.js";

const perMinute = (limit: number): { limit: number; per: "1m"; counts: "cost" } => ({
  limit,
  per: "1m",
  counts: "cost",
});
/** Cost is counted by a rule alone. */
const ruled = (limit: number) => ({ rate: "1000/s", rules: [perMinute(limit)], lateness: 0 }) as const;
/** Cost is what the rate counts: one a second, unless said otherwise. */
const weighed = (burst: number, limit = 1) =>
  ({ rate: { limit, per: "1s", counts: "cost" }, burst, lateness: 0 }) as const;

/** Reserves so many costs at `now`, one after the other. */
async function reserveAll(bucket: Bucket, costs: readonly number[], now = T0, from = 0): Promise<number[]> {
  const slots = await Promise.all(costs.map((cost, i) => bucket.reserve(now, `c${from + i}`, "", cost)));
  return slots.map(Number);
}
const ahead = (slots: readonly number[]): number[] => slots.map((slot) => slot - T0);

describe("a rule that counts cost", () => {
  test("holds no more than that in any window, and opens when enough has left it", async () => {
    const bucket = await bucketOf(ruled(10));
    expect(ahead(await reserveAll(bucket, [4, 4, 2]))).toEqual([0, MS, 2 * MS]);
    // 3 more need the first 4 to leave; 5 more then need the second.
    expect(ahead(await reserveAll(bucket, [3, 5], T0 + S, 3))).toEqual([MINUTE, MINUTE + MS]);
  });

  test("counts the start where it was: also when each is as late as it may be", async () => {
    const bucket = await bucketOf({ ...ruled(10), lateness: "10ms" });
    const slots = await reserveAll(
      bucket,
      Array.from({ length: 200 }, (_, i) => 1 + (i % 4)),
    );
    for (const [i, slot] of slots.entries()) {
      const within = slots.slice(i).filter((other) => other < slot + MINUTE + 10 * MS);
      const weight = within.reduce((sum, _slot, j) => sum + 1 + ((i + j) % 4), 0);
      expect(weight).toBeLessThanOrEqual(10);
    }
  });

  test("a call that weighs more than the window waits until it is empty, goes, and fills it", async () => {
    const bucket = await bucketOf(ruled(10));
    expect(ahead(await reserveAll(bucket, [1, 25, 1, 9]))).toEqual([0, MINUTE, 2 * MINUTE, 2 * MINUTE + MS]);
  });

  test("rules of both kinds hold together", async () => {
    const bucket = await bucketOf({ ...ruled(10), rules: [perMinute(10), "2/s"] });
    expect(ahead(await reserveAll(bucket, [1, 1, 1, 7, 1]))).toEqual([0, MS, S, S + MS, MINUTE]);
  });

  test("a call that costs nothing said costs one", async () => {
    const bucket = await bucketOf(ruled(2));
    expect(ahead(await reserveAll(bucket, [1, 1, 1]))).toEqual([0, MS, MINUTE]);
  });

  test("counts a grant at once, a call that is taken, and a further attempt", async () => {
    const bucket = await bucketOf(ruled(10));
    await using _listener = await listen("caller");
    const permit = { now: T0, kind: "permit", client: "caller", terms: { cost: 4 }, lease: HOUR } as const;
    expect(await bucket.admit({ ...permit, ids: ["p"] })).toMatchObject({ state: "GRANTED", slot: T0 });
    await bucket.admit({ now: T0, ids: ["r"], terms: { cost: 4 } });
    expect((await bucket.take({ now: T0 })).calls).toMatchObject([{ id: "r", cost: 4, slot: T0 + MS }]);
    // The permit that follows does not fit, so it is not granted at once.
    expect(await bucket.admit({ ...permit, ids: ["q"] })).toMatchObject({ state: "ADDED", firstAt: T0 + MINUTE });
    expect(await bucket.take({ now: T0 })).toMatchObject({ state: "wait", again: T0 + MINUTE - 20 * MS });
    expect(await bucket.reserve(T0, "r", "", 2)).toBe(T0 + 2 * MS);
    expect((await bucket.take({ now: T0 + MINUTE })).calls).toMatchObject([{ id: "q", cost: 4, slot: T0 + MINUTE }]);
  });
});

describe("giving back", () => {
  test("a start that did not happen weighs nothing, wherever it was", async () => {
    const bucket = await bucketOf(ruled(10));
    await reserveAll(bucket, [4, 4, 2]);
    await bucket.giveBack(T0 + S, "c1", T0 + MS);
    expect(await bucket.reserve(T0 + S, "d", "", 4)).toBe(T0 + S);
    expect(await bucket.reserve(T0 + S, "e", "", 1)).toBe(T0 + MINUTE);
    await bucket.giveBack(T0 + S, "c1", T0 + MS);
    expect(await bucket.field("costSum")).toBe(String(4 + 2 + 4 + 1));
  });

  test("a slot that is exchanged counts once", async () => {
    const bucket = await bucketOf(ruled(10));
    const first = await bucket.slot(T0, "a", "next", "", 6);
    const second = await bucket.slot(T0 + S, "a", "next", first, 6);
    expect(ahead([first, second])).toEqual([0, S]);
    expect(await bucket.reserve(T0 + S, "b", "", 4)).toBe(T0 + S + MS);
    expect(await bucket.redis.zcard(bucket.key("costs"))).toBe(2);
  });

  test("slots that a reopened gate recalls weigh nothing, and the window stays exact", async () => {
    const bucket = await bucketOf(ruled(10));
    await reserveAll(bucket, [3]);
    await bucket.control(T0, "pause", HOUR);
    expect(ahead(await reserveAll(bucket, [5, 5], T0, 1))).toEqual([HOUR, HOUR + MS]);
    await bucket.control(T0 + S, "resume");
    const again = await Promise.all(
      [1, 2].map((n) => bucket.slot(T0 + S, `c${n}`, "confirm", T0 + HOUR + (n - 1) * MS, 5)),
    );
    expect(ahead(again)).toEqual([S + 75 * MS + MS, MINUTE]);
  });
});

describe("settlement", () => {
  test("down makes room at once", async () => {
    const bucket = await bucketOf(ruled(10));
    await reserveAll(bucket, [6, 4]);
    await bucket.settle(T0 + S, "c0", T0, 6, 1);
    expect(await bucket.reserve(T0 + S, "d", "", 5)).toBe(T0 + S);
    expect(await bucket.reserve(T0 + S, "e", "", 1)).toBe(T0 + MINUTE);
  });

  test("up counts where the call was, and leaves the window with it", async () => {
    const bucket = await bucketOf(ruled(10));
    await reserveAll(bucket, [1], T0);
    await reserveAll(bucket, [1], T0 + 30 * S, 1);
    await bucket.settle(T0 + 31 * S, "c0", T0, 1, 9);
    expect(await bucket.reserve(T0 + 31 * S, "d", "", 1)).toBe(T0 + MINUTE);
  });

  test("beyond the window: nothing goes until that call has left it", async () => {
    const bucket = await bucketOf(ruled(10));
    await reserveAll(bucket, [1, 1]);
    await bucket.settle(T0 + S, "c1", T0 + MS, 1, 500);
    expect(await bucket.reserve(T0 + S, "d")).toBe(T0 + MINUTE + MS);
    expect(await bucket.reserve(T0 + S, "e", "", 9)).toBe(T0 + MINUTE + 2 * MS);
  });

  test("to nothing, twice, of a call nobody knows, and of one that is long forgotten", async () => {
    const bucket = await bucketOf(ruled(10));
    await reserveAll(bucket, [5, 5]);
    await bucket.settle(T0, "c0", T0, 5, 0);
    await bucket.settle(T0, "c1", T0 + MS, 5, 3);
    await bucket.settle(T0, "c1", T0 + MS, 3, 7);
    await bucket.settle(T0, "nobody", T0, 5, 1);
    expect(await bucket.reserve(T0 + S, "d", "", 3)).toBe(T0 + S);
    expect(await bucket.reserve(T0 + S, "e")).toBe(T0 + MINUTE + MS);
    await reserveAll(bucket, [1, 1, 1], T0 + HOUR, 10);
    await bucket.settle(T0 + HOUR, "c1", T0 + MS, 7, 500);
    expect(await bucket.reserve(T0 + HOUR, "f", "", 7)).toBe(T0 + HOUR + 3 * MS);
  });

  test("down wakes whoever waits for the next slot, up does not", async () => {
    const bucket = await bucketOf(ruled(10));
    await using listener = await listen("worker");
    await bucket.admit({ now: T0, ids: ["a", "b"], terms: { cost: 10 } });
    expect(await bucket.take({ now: T0 })).toMatchObject({ state: "wait", calls: [{ id: "a" }] });
    await listener.clear();
    await bucket.settle(T0 + S, "a", T0, 10, 12);
    expect(await listener.heard()).toEqual([]);
    await bucket.settle(T0 + S, "a", T0, 12, 0);
    expect(await listener.heard()).toEqual([{ to: "worker", message: bucket.name }]);
    expect((await bucket.take({ now: T0 + S })).calls).toMatchObject([{ id: "b", slot: T0 + S }]);
  });
});

describe("a rate that counts cost", () => {
  test("a call takes as long as it weighs", async () => {
    const bucket = await bucketOf(weighed(1));
    expect(ahead(await reserveAll(bucket, [1, 5, 2, 1]))).toEqual([0, S, 6 * S, 8 * S]);
  });

  test("after idle a burst goes at once, and one that is heavier than the burst", async () => {
    const bucket = await bucketOf(weighed(5));
    expect(ahead(await reserveAll(bucket, [3, 2, 1, 2]))).toEqual([0, 0, S, 3 * S]);
    const other = await bucketOf(weighed(5));
    expect(ahead(await reserveAll(other, [20, 1, 5]))).toEqual([0, 16 * S, 21 * S]);
  });

  test("a heavy one waits until the burst has come back, whole", async () => {
    const bucket = await bucketOf(weighed(5));
    expect(ahead(await reserveAll(bucket, [1, 20, 1]))).toEqual([0, S, 17 * S]);
  });

  test.each([
    [10, 1],
    [10, 4],
    [7, 3],
    [3, 10],
  ] as const)(
    "rate %i, burst %i: no window holds more than rate + burst - 1, and one heavier call",
    async (limit, burst) => {
      const bucket = await bucketOf({ ...weighed(burst, limit), lateness: "10ms" });
      const costs = Array.from({ length: 150 }, (_, i) => 1 + ((i * 7) % 5) + (i % 20 === 0 ? 8 : 0));
      const slots = [...(await reserveAll(bucket, costs)), ...(await reserveAll(bucket, costs, T0 + HOUR, 200))];
      const most = limit + burst - 1 + Math.max(0, Math.max(...costs) - burst);
      let fullest = 0;
      for (const [i, slot] of slots.entries()) {
        const within = slots.slice(i).filter((other) => other < slot + S + 10 * MS);
        const weight = within.reduce((sum, _slot, j) => sum + (costs[(i + j) % costs.length] ?? 0), 0);
        fullest = Math.max(fullest, weight);
      }
      expect(fullest).toBeLessThanOrEqual(most);
      expect(fullest).toBeGreaterThan(limit);
    },
  );

  test("no credit is saved up while the gate is closed", async () => {
    const bucket = await bucketOf(weighed(5));
    await bucket.control(T0, "pause", HOUR);
    expect(ahead(await reserveAll(bucket, [1, 1]))).toEqual([HOUR, HOUR + S]);
  });

  test("what a call cost more is waited for, what it cost less is given back as far as it has not leaked out", async () => {
    const bucket = await bucketOf(weighed(1));
    await reserveAll(bucket, [4]);
    await bucket.settle(T0, "c0", T0, 4, 6);
    expect(await bucket.reserve(T0 + S, "a")).toBe(T0 + 6 * S);
    const other = await bucketOf(weighed(1));
    await reserveAll(other, [10]);
    await other.settle(T0 + 3 * S, "c0", T0, 10, 1);
    expect(await other.reserve(T0 + 3 * S, "a")).toBe(T0 + 4 * S);
    const idle = await bucketOf(weighed(1));
    await reserveAll(idle, [10]);
    await idle.settle(T0 + 20 * S, "c0", T0, 10, 1);
    expect(ahead(await reserveAll(idle, [1, 1], T0 + 20 * S, 1))).toEqual([20 * S, 21 * S]);
  });

  test("a start that did not happen is given back whole", async () => {
    const bucket = await bucketOf(weighed(3, 7));
    await reserveAll(bucket, [2, 5]);
    const before = [await bucket.field("tat"), await bucket.field("part"), await bucket.field("last")];
    const slot = Number(await bucket.reserve(T0, "x", "", 11));
    await bucket.giveBack(T0, "x", slot);
    expect([await bucket.field("tat"), await bucket.field("part"), await bucket.field("last")]).toEqual(before);
  });
});

describe("the expected start", () => {
  test("of a call behind others counts what the last ones cost on average", async () => {
    const bucket = await bucketOf(weighed(1));
    await bucket.admit({ now: T0, ids: ["a"], terms: { cost: 10 } });
    await bucket.take({ now: T0 });
    await bucket.admit({ now: T0, ids: ["b", "c"], terms: { cost: 10 } });
    expect(await bucket.stats(T0)).toMatchObject({ expectedAt: T0 + 30 * S });
    expect(await bucket.admit({ now: T0, ids: ["d"] })).toMatchObject({ firstAt: T0 + 30 * S });
  });

  test("knows what the call itself costs", async () => {
    const bucket = await bucketOf(weighed(5));
    await reserveAll(bucket, [5]);
    for (const [of, at] of [
      [1, 1],
      [4, 4],
      [20, 5],
    ] as const) {
      const added = await bucket.admit({ now: T0, ids: ["a"], terms: { cost: of } });
      expect({ of, ...added }).toMatchObject({ of, firstAt: T0 + at * S });
      await bucket.cancel(T0, "a");
    }
  });

  test("the average follows, but not at once", async () => {
    const bucket = await bucketOf(ruled(1000));
    await reserveAll(bucket, [16]);
    await reserveAll(bucket, [32], T0, 1);
    expect(Number(await bucket.field("mean"))).toBe(17);
    await reserveAll(
      bucket,
      Array.from({ length: 100 }, () => 1),
      T0,
      2,
    );
    expect(Number(await bucket.field("mean"))).toBeCloseTo(1, 1);
  });

  test("knows the windows of cost", async () => {
    const bucket = await bucketOf(ruled(10));
    await bucket.admit({ now: T0, ids: ["a"], terms: { cost: 5 } });
    await bucket.take({ now: T0 });
    await bucket.admit({ now: T0, ids: ["b", "c", "d"], terms: { cost: 5 } });
    // b fits beside a; c and d come a minute later, and what comes then, a minute after that.
    expect(await bucket.stats(T0)).toMatchObject({ nextSlot: T0 + MS, expectedAt: T0 + 2 * MINUTE });
  });
});

describe("what is remembered", () => {
  test("is as long as the longest window needs", async () => {
    const bucket = await bucketOf(ruled(1000));
    for (let minute = 0; minute < 8; minute++) {
      const costs = Array.from({ length: 40 }, (_, i) => 1 + (i % 5));
      await reserveAll(bucket, costs, T0 + minute * 2 * MINUTE, minute * 40);
    }
    expect(await bucket.redis.zcard(bucket.key("costs"))).toBeLessThanOrEqual(41);
    // The totals still say what the window holds.
    expect(Number(await bucket.field("costSum")) - Number(await bucket.field("costOut"))).toBe(120);
  });

  test("is nothing where nothing counts cost", async () => {
    const bucket = await bucketOf({ rate: "1000/s", rules: ["5/m"] });
    await reserveAll(bucket, [5, 5]);
    await bucket.settle(T0, "c0", T0, 5, 50);
    expect(await bucket.redis.exists(bucket.key("costs"))).toBe(0);
  });

  test("goes with the bucket", async () => {
    const bucket = await bucketOf(ruled(10));
    await using _listener = await listen("caller");
    await bucket.admit({ now: T0, ids: ["p"], kind: "permit", client: "caller" });
    await reserveAll(bucket, [1]);
    expect(await bucket.redis.pttl(bucket.key("costs"))).toBeGreaterThan(0);
  });
});

describe("a policy that changes", () => {
  test("a tighter rule counts what has started", async () => {
    const bucket = await bucketOf(ruled(10));
    await reserveAll(bucket, [4, 4]);
    await bucket.set(T0 + S, { rules: "5/60000000c" });
    expect(await bucket.reserve(T0 + S, "a", "", 1)).toBe(T0 + MINUTE);
    await bucket.set(T0 + S, { rules: "20/60000000c" });
    expect(await bucket.reserve(T0 + 2 * MINUTE, "b", "", 19)).toBe(T0 + 2 * MINUTE);
  });

  test("a rule that goes and comes again counts what it saw, and what it saw is corrected meanwhile", async () => {
    const bucket = await bucketOf(ruled(10));
    await reserveAll(bucket, [4, 4, 2]);
    await bucket.set(T0 + S, { rules: "" });
    await bucket.settle(T0 + S, "c0", T0, 4, 1);
    await bucket.giveBack(T0 + S, "c2", T0 + 2 * MS);
    await bucket.set(T0 + 2 * S, { rules: "10/60000000c" });
    expect(await bucket.reserve(T0 + 2 * S, "d", "", 5)).toBe(T0 + 2 * S);
    expect(await bucket.reserve(T0 + 2 * S, "e", "", 1)).toBe(T0 + MINUTE);
  });

  test("the debt of a rate that counted cost is not taken for one of calls, nor the other way round", async () => {
    const bucket = await bucketOf(weighed(1, 1000));
    await reserveAll(bucket, [3000]);
    await bucket.set(T0, { limit: 1, per: 10 * S, weighed: "0" });
    // 3000 of 1000 a second: 3 s, and not 3000 calls.
    expect(ahead(await reserveAll(bucket, [1, 1], T0, 1))).toEqual([3 * S, 13 * S]);
  });

  test("another rate of cost keeps the debt in cost", async () => {
    const bucket = await bucketOf(weighed(1, 10));
    await reserveAll(bucket, [100]);
    await bucket.set(T0, { limit: 100 });
    expect(await bucket.reserve(T0, "a")).toBe(T0 + S);
  });
});

describe("a clock", () => {
  test("that is set back takes the windows with it", async () => {
    const bucket = await bucketOf(ruled(10));
    await reserveAll(bucket, [4, 4]);
    const back = T0 - HOUR;
    // Ten seconds were lost.
    await bucket.reserve(T0 + 10 * S, "x", "", 1);
    expect(await bucket.reserve(back, "d", "", 1)).toBe(back + MS);
    expect(await bucket.reserve(back, "e", "", 1)).toBe(back + 50 * S);
  });

  test("a start that came late counts when it came, and is corrected there", async () => {
    const bucket = await bucketOf({ rate: "1/s", rules: [perMinute(10)], lateness: "10ms" });
    const [, second = 0] = await reserveAll(bucket, [6, 3, 1]);
    // The first call started five seconds late, after the second and the third.
    await bucket.late(T0 + 5 * S, "c0", T0, 5 * S);
    await bucket.settle(T0 + 6 * S, "c0", T0, 6, 5);
    const cycle = MINUTE + 10 * MS;
    // 3 fit when the second has left; more not before the first.
    expect(await bucket.reserve(T0 + 6 * S, "d", "", 4)).toBe(second + cycle);
    expect(await bucket.reserve(T0 + 6 * S, "e", "", 4)).toBe(T0 + 5 * S + cycle);
  });
});
