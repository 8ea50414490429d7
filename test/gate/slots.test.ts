import { describe, expect, test } from "vitest";
import { bucketOf, HOUR, MINUTE, MS, S, T0, type Bucket } from "../helpers/scripts.js";

/** Reserves at `now`, one after the other, in one go. */
async function reserveMany(bucket: Bucket, count: number, now: number, from = 0): Promise<number[]> {
  const slots = await Promise.all(Array.from({ length: count }, (_, i) => bucket.reserve(now, `c${from + i}`)));
  return slots.map(Number);
}

const gaps = (slots: readonly number[]): number[] => slots.slice(1).map((slot, i) => slot - (slots[i] ?? 0));

/** The most starts in any window of this length, each start somewhere in [slot, slot + late]. */
function mostStarts(slots: readonly number[], per: number, late: number): number {
  // The tightest case: the first start as late as it may be, the others on time.
  return Math.max(...slots.map((slot, i) => 1 + slots.filter((other, j) => j > i && other < slot + late + per).length));
}

describe("spacing", () => {
  test.each([
    ["10/s", "10ms", 101 * MS],
    ["10/s", 0, 100 * MS],
    ["2/s", "50ms", 525 * MS],
    ["2500/s", "10ms", 404],
    ["1/h", "10ms", HOUR + 10 * MS],
  ] as const)("%s, lateness %s: (period + lateness) / limit", async (rate, lateness, gap) => {
    const bucket = await bucketOf({ rate, lateness });
    const slots = await reserveMany(bucket, 20, T0);
    expect(slots[0]).toBe(T0);
    expect(new Set(gaps(slots))).toEqual(new Set([gap]));
  });

  test.each([
    ["3/s", 0, 3, S],
    ["7/10s", "10ms", 7, 10 * S + 10 * MS],
    ["2500/s", "1ms", 2500, S + MS],
    ["300000/s", 0, 300_000, S],
    ["1000000/s", "10ms", 1_000_000, S + 10 * MS],
  ] as const)("%s, lateness %s: no drift over 10,000 slots", async (rate, lateness, limit, cycle) => {
    const bucket = await bucketOf({ rate, lateness });
    const slots = await reserveMany(bucket, 10_001, T0);
    expect(slots.at(-1)).toBe(T0 + Math.floor((10_000 * cycle) / limit));
    for (let i = limit; i < slots.length; i++) {
      if ((slots[i] ?? 0) - (slots[i - limit] ?? 0) < cycle) expect.unreachable(`slot ${i} is too early`);
    }
  });

  test("a call that comes late does not shift the grid backwards: no credit is saved up", async () => {
    const bucket = await bucketOf({ rate: "10/s", lateness: 0 });
    await reserveMany(bucket, 1, T0);
    expect(await reserveMany(bucket, 3, T0 + 250 * MS, 1)).toEqual([T0 + 250 * MS, T0 + 350 * MS, T0 + 450 * MS]);
  });
});

describe("burst", () => {
  test.each([2, 5, 40])("burst %i: so many at once after idle, then the rate", async (burst) => {
    const bucket = await bucketOf({ rate: "3/s", burst, lateness: 0 });
    const slots = await reserveMany(bucket, burst + 6, T0);
    expect(slots.slice(0, burst)).toEqual(Array.from({ length: burst }, () => T0));
    for (const [i, slot] of slots.slice(burst).entries()) {
      expect(Math.abs(slot - (T0 + ((i + 1) * S) / 3))).toBeLessThanOrEqual(1);
    }
  });

  test("at most N + b - 1 starts in any window, and exactly that many in the fullest", async () => {
    const bucket = await bucketOf({ rate: "5/s", burst: 4, lateness: "10ms" });
    const slots = [...(await reserveMany(bucket, 30, T0)), ...(await reserveMany(bucket, 30, T0 + MINUTE, 30))];
    expect(mostStarts(slots, S, 10 * MS)).toBe(8);
  });

  test("credit comes back one call per interval", async () => {
    const bucket = await bucketOf({ rate: "10/s", burst: 3, lateness: 0 });
    await reserveMany(bucket, 3, T0);
    const now = T0 + 200 * MS;
    expect(await reserveMany(bucket, 3, now, 3)).toEqual([now, now, now + 100 * MS]);
  });
});

describe("rules", () => {
  test("each rule is strict, also when every start is as late as it may be", async () => {
    const bucket = await bucketOf({ rate: "10/s", rules: ["20/m", "50/h"], lateness: "10ms" });
    const slots = await reserveMany(bucket, 120, T0);
    expect(mostStarts(slots, S, 10 * MS)).toBe(10);
    expect(mostStarts(slots, MINUTE, 10 * MS)).toBe(20);
    expect(mostStarts(slots, HOUR, 10 * MS)).toBe(50);
  });

  test("a rule opens the moment its window has passed, not later", async () => {
    const bucket = await bucketOf({ rate: "10/s", rules: ["2/m"], lateness: "10ms" });
    const slots = await reserveMany(bucket, 5, T0);
    const cycle = MINUTE + 10 * MS;
    expect(slots).toEqual([0, 101 * MS, cycle, cycle + 101 * MS, 2 * cycle].map((t) => T0 + t));
  });

  test("giving back a slot that a rule pushed ahead does not open the window", async () => {
    const bucket = await bucketOf({ rate: "10/s", burst: 20, rules: ["2/m"], lateness: 0 });
    await reserveMany(bucket, 2, T0);
    const third = await bucket.slot(T0 + S, "c2", "next", "");
    expect(third).toBe(T0 + MINUTE);
    await bucket.giveBack(T0 + 2 * S, "c2", third);
    expect(await bucket.reserve(T0 + 2 * S, "c3")).toBe(T0 + MINUTE);
  });

  test("a burst does not overtake a slot that a rule pushed ahead, when the starts before it are given back", async () => {
    const bucket = await bucketOf({ rate: "1/7ms", burst: 3, rules: ["2/s"], lateness: 0 });
    expect(await reserveMany(bucket, 3, T0)).toEqual([T0, T0, T0 + S]);
    for (const id of ["c0", "c1"]) await bucket.giveBack(T0, id, T0);
    expect(await bucket.reserve(T0, "d")).toBeGreaterThanOrEqual(T0 + S);
  });

  test("a start that did not happen does not count", async () => {
    const bucket = await bucketOf({ rate: "10/s", rules: ["2/m"], lateness: 0 });
    await reserveMany(bucket, 2, T0);
    await bucket.giveBack(T0 + 100 * MS, "c1", T0 + 100 * MS);
    expect(await bucket.reserve(T0 + S, "c2")).toBe(T0 + S);
    expect(await bucket.reserve(T0 + S, "c3")).toBe(T0 + MINUTE);
  });

  test("what is remembered is bounded by the largest rule", async () => {
    const bucket = await bucketOf({ rate: "100/s", rules: ["30/s", "40/m"], lateness: 0 });
    for (let minute = 0; minute < 10; minute++) await reserveMany(bucket, 40, T0 + minute * 2 * MINUTE, minute * 40);
    expect(await bucket.redis.zcard(bucket.key("log"))).toBeLessThanOrEqual(41);
  });

  test("without rules nothing is remembered", async () => {
    const bucket = await bucketOf({ rate: "100/s" });
    await reserveMany(bucket, 50, T0);
    expect(await bucket.redis.exists(bucket.key("log"))).toBe(0);
  });

  test("a longer rule that is set later counts what started before", async () => {
    const bucket = await bucketOf({ rate: "10/s", rules: ["5/s"], lateness: 0 });
    await reserveMany(bucket, 5, T0);
    await bucket.set(T0 + 10 * S, { rules: "5/3600000000" });
    expect(await bucket.reserve(T0 + 10 * S, "late")).toBe(T0 + HOUR);
  });
});

describe("giving back", () => {
  test("the newest slot is free again", async () => {
    const bucket = await bucketOf({ rate: "10/s", lateness: 0 });
    const [, , third = 0] = await reserveMany(bucket, 3, T0);
    await bucket.giveBack(T0, "c2", third);
    expect(await bucket.reserve(T0, "d")).toBe(third);
    expect(await bucket.reserve(T0, "e")).toBe(third + 100 * MS);
  });

  test("an older one stays empty", async () => {
    const bucket = await bucketOf({ rate: "10/s", lateness: 0 });
    const [, second = 0, third = 0] = await reserveMany(bucket, 3, T0);
    await bucket.giveBack(T0, "c1", second);
    expect(await bucket.reserve(T0, "d")).toBe(third + 100 * MS);
  });

  test("a slot that is given back twice is free once", async () => {
    const bucket = await bucketOf({ rate: "10/s", lateness: 0 });
    const [, second = 0] = await reserveMany(bucket, 2, T0);
    await bucket.giveBack(T0, "c1", second);
    await bucket.giveBack(T0, "c1", second);
    expect(await reserveMany(bucket, 2, T0, 2)).toEqual([second, second + 100 * MS]);
  });

  test("a slot that somebody else has by now is not taken from him", async () => {
    const bucket = await bucketOf({ rate: "10/s", lateness: 0 });
    const [, second = 0] = await reserveMany(bucket, 2, T0);
    await bucket.giveBack(T0, "c1", second);
    expect(await bucket.reserve(T0, "d")).toBe(second);
    await bucket.giveBack(T0, "c1", second);
    expect(await bucket.reserve(T0, "e")).toBe(second + 100 * MS);
  });

  test("what was given back leaves no trace, fractions of a µs included", async () => {
    const bucket = await bucketOf({ rate: "3/s", burst: 2, lateness: 0 });
    await reserveMany(bucket, 4, T0);
    const before = [await bucket.field("tat"), await bucket.field("part"), await bucket.field("last")];
    const slot = Number(await bucket.reserve(T0, "x"));
    await bucket.giveBack(T0, "x", slot);
    expect([await bucket.field("tat"), await bucket.field("part"), await bucket.field("last")]).toEqual(before);
  });

  test("a slot that was missed is given up for the next one", async () => {
    const bucket = await bucketOf({ rate: "10/s", lateness: "10ms" });
    const held = Number(await bucket.reserve(T0, "a"));
    const late = held + 30 * MS;
    expect(await bucket.slot(late, "a", "next", held)).toBe(late);
    expect(await bucket.reserve(late, "b")).toBe(late + 101 * MS);
  });

  test("no slot is given to a call that it would reach too late", async () => {
    const bucket = await bucketOf({ rate: "1/s", lateness: 0 });
    await bucket.reserve(T0, "a");
    expect(await bucket.reserve(T0, "b", T0 + S - 1)).toBe("EXPIRED");
    expect(await bucket.reserve(T0, "c", T0 + S)).toBe(T0 + S);
  });
});
