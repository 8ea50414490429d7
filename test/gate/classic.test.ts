import { Redis } from "ioredis";
import { describe, expect, test } from "vitest";
import { hasNativeRedis, nativeRedis, uniquePrefix } from "../helpers/redis.js";
import { Bucket, bucketOf, HOUR, MINUTE, MS, S, T0 } from "../helpers/scripts.js";

/** T0 lies at the start of a minute and an hour, but not of a day. */
const spaced = { rate: "1000/s", lateness: 0, capacity: 10_000 } as const;

/** The slots of so many calls that come at once, in µs from T0. */
async function slots(options: object, count: number, cost = 1): Promise<number[]> {
  const bucket = await bucketOf({ ...spaced, ...options });
  const found: number[] = [];
  for (let i = 0; i < count; i++) {
    const slot = await bucket.reserve(T0, `c${i}`, "", cost);
    if (slot === "EXPIRED") throw new Error("Expected a slot");
    found.push(slot - T0);
  }
  return found;
}

describe("a classic algorithm beside the rate", () => {
  test("fixed-window: the next window of the calendar, not one period later", async () => {
    expect(await slots({ rules: [{ algorithm: "fixed-window", limit: 2, per: "1m" }] }, 5)).toEqual([
      0,
      MS,
      MINUTE,
      MINUTE + MS,
      2 * MINUTE,
    ]);
  });

  test("token-bucket: a full bucket at once, then what is refilled", async () => {
    const rules = [{ algorithm: "token-bucket", max: 3, refillTime: "10s", refillAmount: 1 }];
    expect(await slots({ rules }, 5)).toEqual([0, MS, 2 * MS, 10 * S, 20 * S]);
  });

  test("leaky-bucket: a burst of its own", async () => {
    const rules = [{ algorithm: "leaky-bucket", rate: "1/s", burst: 2 }];
    expect(await slots({ rules }, 4)).toEqual([0, MS, S, 2 * S]);
  });

  test("sliding-log is a strict window", async () => {
    const rules = [{ algorithm: "sliding-log", rules: ["2/s", "3/10s"] }];
    expect(await slots({ rules }, 5)).toEqual([0, MS, S, 10 * S, 10 * S + MS]);
  });

  test("sliding-window-counter and sliding-window hold", async () => {
    for (const algorithm of ["sliding-window-counter", "sliding-window"]) {
      const found = await slots({ rules: [{ algorithm, limit: 4, per: "1m" }] }, 12);
      const spans = found.slice(4).map((slot, i) => slot - (found[i] ?? 0));
      expect(Math.min(...spans)).toBeGreaterThan(10 * S);
    }
  });

  test("all hold at once, and stats say which one makes callers wait", async () => {
    const rules = ["3/s", { algorithm: "fixed-window", limit: 5, per: "1h" }] as const;
    const bucket = await bucketOf({ ...spaced, rate: "10/s", rules });
    const why = async (): Promise<unknown> => (await bucket.run("stats", [T0]))[13];
    const found: number[] = [];
    const reasons: unknown[] = [];
    for (let i = 0; i < 7; i++) {
      reasons.push(await why());
      found.push(Number(await bucket.reserve(T0, `c${i}`)) - T0);
    }
    expect(found).toEqual([0, 100 * MS, 200 * MS, S, 1100 * MS, HOUR, HOUR + 100 * MS]);
    expect(reasons).toEqual(["", "rate", "rate", "3/1000000", "rate", "fixed-window:5:3600000000", "rate"]);
  });

  test("stats go by what the call weighs that is next", async () => {
    const rules = [{ algorithm: "fixed-window", limit: 10, per: "1m", counts: "cost" }] as const;
    const bucket = await bucketOf({ ...spaced, rules });
    await bucket.admit({ now: T0, ids: ["a", "b"], terms: { cost: 8 } });
    await bucket.take({ now: T0 });
    expect(await bucket.stats(T0 + S)).toMatchObject({ nextSlot: T0 + MINUTE });
    expect((await bucket.run("stats", [T0 + S]))[13]).toBe("$fixed-window:10:60000000");
    await bucket.admit({ now: T0, ids: ["first"], terms: { priority: "high" } });
    expect(await bucket.stats(T0 + S)).toMatchObject({ nextSlot: T0 + S });
  });

  test("stats say so when calls wait for others to end", async () => {
    const bucket = await bucketOf({ ...spaced, concurrency: 1 });
    const why = async (now: number): Promise<unknown> => (await bucket.run("stats", [now]))[13];
    await bucket.admit({ now: T0, ids: ["a", "b"] });
    expect(await why(T0)).toBe("");
    await bucket.take({ now: T0 });
    expect([await why(T0), await why(T0 + S)]).toEqual(["rate", "concurrency"]);
    await bucket.finish(T0 + S, "a");
    expect(await why(T0 + S)).toBe("");
  });

  test("what it is taken to cost counts where the rule says so", async () => {
    const rules = [{ algorithm: "fixed-window", limit: 10, per: "1m", counts: "cost" }];
    expect(await slots({ rules }, 3, 5)).toEqual([0, MS, MINUTE]);
    // Heavier than all of it: alone in a window.
    expect(await slots({ rules }, 3, 50)).toEqual([0, MINUTE, 2 * MINUTE]);
  });

  test("what weighs more than a leaky bucket holds is paid for by those behind it", async () => {
    const rules = [{ algorithm: "leaky-bucket", rate: "60/m", counts: "cost" }];
    expect(await slots({ rules }, 4, 30)).toEqual([0, 30 * S, 60 * S, 90 * S]);
  });

  test("a slot that is given back can be taken by another call", async () => {
    const bucket = await bucketOf({ ...spaced, rules: [{ algorithm: "fixed-window", limit: 1, per: "1m" }] });
    expect(await bucket.reserve(T0, "a")).toBe(T0);
    await bucket.giveBack(T0, "a", T0);
    expect(await bucket.reserve(T0, "b")).toBe(T0);
    expect(await bucket.reserve(T0, "c")).toBe(T0 + MINUTE);
  });

  test("the clock of the server is set back: nothing waits until the old time comes again", async () => {
    const bucket = await bucketOf({ ...spaced, rules: [{ algorithm: "leaky-bucket", rate: "1/s" }] });
    expect(await bucket.reserve(T0, "a")).toBe(T0);
    const before = T0 - HOUR;
    expect(await bucket.reserve(before, "b")).toBeLessThanOrEqual(before + S);
  });

  const twoAMinute = [
    { algorithm: "fixed-window", limit: 2, per: "1m" },
    { algorithm: "token-bucket", max: 2, refillTime: "1m" },
    { algorithm: "leaky-bucket", rate: "1/m", burst: 2 },
    { algorithm: "sliding-window", limit: 2, per: "1m" },
    { algorithm: "sliding-window-counter", limit: 2, per: "1m" },
  ] as const;

  test.each(twoAMinute)("a pause that ends early leaves $algorithm as it was before it", async (rule) => {
    const bucket = await bucketOf({ ...spaced, rules: [rule] });
    expect(await bucket.reserve(T0, "a")).toBe(T0);
    await bucket.control(T0, "pause", HOUR);
    for (const id of ["b", "c", "d", "e", "f"]) expect(await bucket.reserve(T0, id)).toBeGreaterThanOrEqual(T0 + HOUR);
    await bucket.control(T0 + S, "resume");
    // One more fits at once, and no other one for a while.
    expect(Number(await bucket.reserve(T0 + S, "g")) - T0).toBeLessThan(2 * S);
    expect(Number(await bucket.reserve(T0 + S, "h")) - T0).toBeGreaterThan(30 * S);
  });

  // A server of its own: where a script never ends, no other test could go on.
  test.runIf(hasNativeRedis).each(twoAMinute)(
    "further attempts during a pause without an end leave $algorithm as it was before it",
    async (rule) => {
      await using server = await nativeRedis();
      const redis = new Redis(server.url, { maxRetriesPerRequest: 0 });
      redis.on("error", () => {});
      try {
        const bucket = new Bucket(redis, uniquePrefix(), "paused");
        await bucket.declare({ ...spaced, rules: [rule] });
        expect(await bucket.reserve(T0, "a")).toBe(T0);
        await bucket.control(T0, "pause");
        for (const id of ["b", "c", "d", "e", "f"])
          expect(await bucket.reserve(T0, id)).toBeGreaterThanOrEqual(Number.MAX_SAFE_INTEGER);
        expect((await bucket.stats(T0)).nextSlot).toBeGreaterThanOrEqual(Number.MAX_SAFE_INTEGER);
        await bucket.control(T0 + S, "resume");
        expect(Number(await bucket.reserve(T0 + S, "g")) - T0).toBeLessThan(2 * S);
        expect(Number(await bucket.reserve(T0 + S, "h")) - T0).toBeGreaterThan(30 * S);
      } finally {
        redis.disconnect();
      }
    },
  );

  test("a pause that ends early, when the only slot behind it has been given back", async () => {
    const bucket = await bucketOf({ ...spaced, rules: [{ algorithm: "fixed-window", limit: 2, per: "1m" }] });
    expect(await bucket.reserve(T0, "a")).toBe(T0);
    await bucket.control(T0, "pause", HOUR);
    expect(await bucket.reserve(T0, "b")).toBe(T0 + HOUR);
    await bucket.giveBack(T0, "b", T0 + HOUR);
    await bucket.control(T0 + S, "resume");
    expect(await bucket.reserve(T0 + S, "c")).toBe(T0 + S);
    expect(await bucket.reserve(T0 + S, "d")).toBe(T0 + MINUTE);
  });

  test("a slot that was taken before a rule came does not make room in it", async () => {
    const bucket = await bucketOf(spaced);
    expect(await bucket.reserve(T0, "a")).toBe(T0);
    await bucket.set(T0, { classic: "fixed-window:2:60000000" });
    expect(await bucket.reserve(T0 + S, "b")).toBe(T0 + S);
    await bucket.giveBack(T0 + S, "a", T0);
    expect(await bucket.reserve(T0 + S, "c")).toBe(T0 + S + MS);
    expect(await bucket.reserve(T0 + S, "d")).toBe(T0 + MINUTE);
  });

  test("expected starts count it", async () => {
    const bucket = await bucketOf({ ...spaced, rules: [{ algorithm: "fixed-window", limit: 2, per: "1m" }] });
    const admitted = await bucket.admit({ now: T0, ids: ["a", "b", "c", "d", "e"] });
    expect(admitted).toMatchObject({ state: "ADDED", firstAt: T0, lastAt: T0 + 2 * MINUTE });
  });

  test("set() changes it at once", async () => {
    const bucket = await bucketOf({ ...spaced, rules: [{ algorithm: "fixed-window", limit: 1, per: "1m" }] });
    await bucket.reserve(T0, "a");
    await bucket.set(T0, { rules: "", classic: "fixed-window:2:60000000" });
    expect(await bucket.reserve(T0, "b")).toBe(T0 + MS);
  });
});
