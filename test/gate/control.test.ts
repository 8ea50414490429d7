import { describe, expect, test } from "vitest";
import { encodePolicy } from "../../dist/limits/policy.js";
import { bucketOf, HOUR, listen, MINUTE, MS, S, T0, type Bucket } from "../helpers/scripts.js";

const many = (bucket: Bucket, count: number, now: number, from = 0): Promise<(number | "EXPIRED")[]> =>
  Promise.all(Array.from({ length: count }, (_, i) => bucket.reserve(now, `c${from + i}`)));

const per = (limit: number, perMs: number): ReturnType<typeof encodePolicy> => encodePolicy({ rate: { limit, perMs } });

describe("pause", () => {
  test("no slot lies in it, and reopening releases no burst", async () => {
    const bucket = await bucketOf({ rate: "10/s", burst: 5, lateness: 0 });
    const until = T0 + 30 * S;
    expect(await bucket.control(T0, "pause", 30 * S, "why")).toBe(until);
    expect(await many(bucket, 3, T0 + S)).toEqual([until, until + 100 * MS, until + 200 * MS]);
  });

  test("nor does anybody who comes after it, before credit has been earned", async () => {
    const bucket = await bucketOf({ rate: "10/s", burst: 5, lateness: 0 });
    await bucket.control(T0, "pause", 30 * S);
    const now = T0 + 30 * S + 200 * MS;
    expect(await many(bucket, 4, now)).toEqual([now, now, now, now + 100 * MS]);
  });

  test("a shorter one neither shortens it nor changes its reason", async () => {
    const bucket = await bucketOf({ rate: "10/s" });
    await bucket.control(T0, "pause", 30 * S, "long");
    expect(await bucket.control(T0 + S, "pause", 5 * S, "short")).toBe(T0 + 30 * S);
    expect(await bucket.reserve(T0 + 2 * S, "a")).toBe(T0 + 30 * S);
    expect(await bucket.field("pauseReason")).toBe("long");
  });

  test("a longer one prolongs it", async () => {
    const bucket = await bucketOf({ rate: "10/s" });
    await bucket.control(T0, "pause", 5 * S, "short");
    expect(await bucket.control(T0 + S, "pause", 30 * S, "long")).toBe(T0 + 31 * S);
    expect(await bucket.reserve(T0 + 2 * S, "a")).toBe(T0 + 31 * S);
  });

  test("a slot that was reserved before it is moved behind it when confirmed", async () => {
    const bucket = await bucketOf({ rate: "1/s", lateness: 0 });
    await bucket.reserve(T0, "a");
    const held = Number(await bucket.reserve(T0, "b"));
    await bucket.control(T0 + 100 * MS, "pause", 10 * S);
    expect(await bucket.slot(held - 15 * MS, "b", "confirm", held)).toBe(T0 + 100 * MS + 10 * S);
  });

  test("a slot behind it is confirmed as it is", async () => {
    const bucket = await bucketOf({ rate: "1/s", lateness: 0 });
    await many(bucket, 3, T0);
    await bucket.control(T0, "pause", 1500 * MS);
    expect(await bucket.slot(T0 + 2 * S - 15 * MS, "c2", "confirm", T0 + 2 * S)).toBe(T0 + 2 * S);
  });

  test("calls wait in the queue, and permits are not granted at once", async () => {
    const bucket = await bucketOf({ rate: "10/s" });
    await bucket.control(T0, "pause", 10 * S);
    await using listener = await listen("here");
    const admitted = await bucket.admit({ now: T0, ids: ["a"], kind: "permit", client: "here" });
    expect(admitted).toMatchObject({ state: "ADDED", firstAt: T0 + 10 * S });
    expect(await bucket.take({ now: T0 })).toMatchObject({ state: "wait", again: T0 + 10 * S - 20 * MS, calls: [] });
    expect(await listener.heard()).toEqual([]);
  });
});

describe("resume", () => {
  test("acts at once, at the rate and without a burst", async () => {
    const bucket = await bucketOf({ rate: "10/s", burst: 5, lateness: 0 });
    await many(bucket, 5, T0 - HOUR);
    await bucket.control(T0, "pause", HOUR);
    const now = T0 + 10 * S;
    await bucket.control(now, "resume");
    expect(await many(bucket, 3, now, 5)).toEqual([now, now + 100 * MS, now + 200 * MS]);
  });

  test("of a gate that is open changes nothing", async () => {
    const bucket = await bucketOf({ rate: "10/s", burst: 3, lateness: 0 });
    await bucket.control(T0, "resume");
    expect(await many(bucket, 4, T0)).toEqual([T0, T0, T0, T0 + 100 * MS]);
  });

  test("acts at once, although a retry has a slot behind the pause; that one is reserved anew", async () => {
    const bucket = await bucketOf({ rate: "10/s", lateness: 0 });
    await bucket.control(T0, "pause", HOUR);
    const held = Number(await bucket.reserve(T0, "retry"));
    expect(held).toBe(T0 + HOUR);
    const now = T0 + 10 * S;
    await bucket.control(now, "resume");
    const next = Number(await bucket.reserve(now, "next"));
    expect(next - now).toBeLessThan(S);
    const later = T0 + HOUR - 15 * MS;
    await many(bucket, 1, later);
    expect(await bucket.slot(later, "retry", "confirm", held)).toBe(later + 100 * MS);
  });

  test("acts at once, although a retry that had a slot behind the pause was given up", async () => {
    const bucket = await bucketOf({ rate: "10/s", lateness: 0 });
    await bucket.control(T0, "pause", HOUR);
    await bucket.giveBack(T0, "retry", Number(await bucket.reserve(T0, "retry")));
    await bucket.control(T0 + S, "resume");
    expect(await bucket.reserve(T0 + S, "next")).toBe(T0 + S);
  });

  test("does not forget what a rule has counted", async () => {
    const bucket = await bucketOf({ rate: "10/s", rules: ["3/m"], lateness: 0 });
    await many(bucket, 3, T0);
    await bucket.control(T0 + S, "pause", HOUR);
    await bucket.reserve(T0 + S, "retry");
    await bucket.control(T0 + 2 * S, "resume");
    expect(await bucket.reserve(T0 + 2 * S, "next")).toBe(T0 + MINUTE);
  });
});

describe("block", () => {
  test("refuses what comes and starts nothing that waits; its end releases no burst", async () => {
    const bucket = await bucketOf({ rate: "10/s", burst: 4, lateness: 0 });
    await bucket.admit({ now: T0, ids: ["a", "b", "c"] });
    await bucket.control(T0, "block", 10 * S, "abuse");
    const refused = await bucket.admit({ now: T0 + S, ids: ["d"] });
    expect(refused).toEqual({ state: "BLOCKED", until: T0 + 10 * S, reason: "abuse" });
    expect((await bucket.take({ now: T0 + S })).calls).toEqual([]);
    const { calls } = await bucket.take({ now: T0 + 10 * S, horizon: S });
    expect(calls.map((call) => call.slot - T0 - 10 * S)).toEqual([0, 100 * MS, 200 * MS]);
  });

  test("unblock acts at once, without a burst", async () => {
    const bucket = await bucketOf({ rate: "10/s", burst: 4, lateness: 0 });
    await bucket.control(T0, "block", HOUR);
    await bucket.control(T0 + S, "unblock");
    expect(await bucket.admit({ now: T0 + S, ids: ["a"] })).toMatchObject({ state: "ADDED" });
    expect(await many(bucket, 2, T0 + S)).toEqual([T0 + S, T0 + S + 100 * MS]);
  });

  test("a pause stays when a block ends, and a block when a pause does", async () => {
    const bucket = await bucketOf({ rate: "10/s" });
    await bucket.control(T0, "pause", 10 * S);
    await bucket.control(T0, "block", 20 * S);
    await bucket.control(T0, "resume");
    expect(await bucket.reserve(T0, "a")).toBe(T0 + 20 * S);
    await bucket.control(T0, "pause", 30 * S);
    await bucket.control(T0, "unblock");
    expect(Number(await bucket.reserve(T0, "b"))).toBe(T0 + 30 * S);
  });
});

describe("set", () => {
  test("a higher rate acts at once: from 1/h to 10/s", async () => {
    const bucket = await bucketOf({ rate: "1/h", lateness: 0 });
    await bucket.reserve(T0, "a");
    const now = T0 + MINUTE;
    await bucket.set(now, per(10, 1000));
    expect(await many(bucket, 2, now)).toEqual([now, now + 100 * MS]);
  });

  test("also when a retry holds a slot an hour ahead; that one is reserved anew", async () => {
    const bucket = await bucketOf({ rate: "1/h", lateness: 0 });
    await bucket.reserve(T0, "a");
    const held = Number(await bucket.reserve(T0, "retry"));
    await bucket.set(T0 + MINUTE, per(10, 1000));
    expect(Number(await bucket.reserve(T0 + MINUTE, "b")) - T0 - MINUTE).toBeLessThan(S);
    const late = held - 15 * MS;
    expect(await bucket.slot(late, "retry", "confirm", held)).toBe(late);
  });

  test("a lower rate counts from the last slot", async () => {
    const bucket = await bucketOf({ rate: "10/s", lateness: 0 });
    await many(bucket, 3, T0);
    await bucket.set(T0 + 300 * MS, per(1, 3_600_000));
    expect(await bucket.reserve(T0 + 300 * MS, "next")).toBe(T0 + 200 * MS + HOUR);
  });

  test("credit that was used does not come back with another rate", async () => {
    const bucket = await bucketOf({ rate: "2/s", burst: 40, lateness: 0 });
    await many(bucket, 40, T0);
    await bucket.set(T0, per(4, 1000));
    expect(await many(bucket, 2, T0, 40)).toEqual([T0 + 250 * MS, T0 + 500 * MS]);
    for (let i = 0; i < 10; i++) await bucket.set(T0 + 500 * MS, per(4 + (i % 2), 1000));
    expect(Number(await bucket.reserve(T0 + 500 * MS, "next"))).toBeGreaterThanOrEqual(T0 + 700 * MS);
  });

  test("what is not given stays, and other parts do not touch the schedule", async () => {
    const bucket = await bucketOf({ rate: "10/s", capacity: 7, lateness: 0 });
    await bucket.reserve(T0, "a");
    await bucket.set(T0, { capacity: 3 });
    expect(await bucket.field("limit")).toBe("10");
    expect(await bucket.reserve(T0, "b")).toBe(T0 + 100 * MS);
    expect(await bucket.admit({ now: T0, ids: ["1", "2", "3", "4"] })).toMatchObject({ state: "FULL", capacity: 3 });
  });

  test("with an expiry, the declared policy comes back at its end, and at once", async () => {
    const bucket = await bucketOf({ rate: "10/s", lateness: 0 });
    await bucket.reserve(T0, "a");
    expect(await bucket.control(T0, "set", 10 * S, JSON.stringify(per(1, 3_600_000)))).toBe(T0 + 10 * S);
    expect(await bucket.reserve(T0 + 9 * S, "b")).toBe(T0 + HOUR);
    const now = T0 + 10 * S;
    const slots = await many(bucket, 2, now);
    expect(Number(slots[0]) - now).toBeLessThan(200 * MS);
    expect(Number(slots[1]) - Number(slots[0])).toBe(100 * MS);
    expect(await bucket.field("override")).toBeNull();
  });

  test("the end of an override that merely looks (stats) is kept", async () => {
    const bucket = await bucketOf({ rate: "10/s", lateness: 0 });
    await bucket.reserve(T0, "a");
    await bucket.set(T0, per(1, 3_600_000), 10 * S);
    await bucket.stats(T0 + 11 * S);
    expect(await bucket.reserve(T0 + 11 * S, "b")).toBe(T0 + 11 * S);
  });

  test("unset goes back to what is declared, at once", async () => {
    const bucket = await bucketOf({ rate: "10/s", lateness: 0 });
    await bucket.set(T0, per(1, 3_600_000));
    await bucket.reserve(T0, "a");
    await bucket.control(T0 + S, "unset");
    expect(await many(bucket, 2, T0 + S)).toEqual([T0 + S, T0 + S + 100 * MS]);
  });

  test("an override stays in force over a declaration, which comes into force behind it", async () => {
    const bucket = await bucketOf({ rate: "10/s", lateness: 0 });
    await bucket.set(T0, per(1, 1000), 10 * S);
    await bucket.declare({ rate: "5/s", lateness: 0, capacity: 3 }, T0);
    expect(await many(bucket, 2, T0)).toEqual([T0, T0 + S]);
    expect(await bucket.field("capacity")).toBe("3");
    expect(await many(bucket, 2, T0 + MINUTE, 2)).toEqual([T0 + MINUTE, T0 + MINUTE + 200 * MS]);
  });

  test("a new declaration acts at once: a process with a higher rate starts", async () => {
    const bucket = await bucketOf({ rate: "1/h", lateness: 0 });
    await bucket.reserve(T0, "a");
    await bucket.declare({ rate: "10/s", lateness: 0 }, T0 + S);
    expect(await bucket.reserve(T0 + S, "b")).toBe(T0 + S);
  });

  test("the same declaration again changes nothing", async () => {
    const bucket = await bucketOf({ rate: "3/s", burst: 2 });
    await many(bucket, 5, T0);
    const before = await bucket.redis.hgetall(bucket.key("gate"));
    await bucket.declare({ rate: "3/s", burst: 2 }, T0 + S);
    expect(await bucket.redis.hgetall(bucket.key("gate"))).toEqual(before);
  });

  test("numbers of any size survive", async () => {
    const bucket = await bucketOf({ rate: "10/s" });
    await bucket.set(T0, encodePolicy({ rate: { limit: 999_999, perMs: 366 * 24 * 3_600_000 } }));
    expect(await bucket.field("per")).toBe("31622400000000");
    await bucket.set(T0, { capacity: 12 });
    expect(await bucket.field("per")).toBe("31622400000000");
  });
});

describe("every change", () => {
  test.each(["pause", "resume", "block", "unblock", "unset", "clear"] as const)(
    "%s tells the workers",
    async (what) => {
      const bucket = await bucketOf({ rate: "10/s" });
      await using listener = await listen("all");
      await bucket.admit({ now: T0, ids: ["a", "b"] });
      await bucket.take({ now: T0, worker: "w", most: 1 });
      await listener.clear();
      if (what === "clear") await bucket.clear(T0);
      else await bucket.control(T0, what, S);
      expect((await listener.heard()).map(({ message }) => message)).toEqual([bucket.name]);
      expect(await bucket.turn()).toBe("");
    },
  );

  test("a bucket that nobody has declared is reported, not made up", async () => {
    const bucket = await bucketOf({ rate: "10/s" });
    await bucket.redis.del(bucket.key("gate"));
    for (const script of ["control", "reserve", "take", "stats", "recover", "failed"] as const) {
      expect(await bucket.run(script, [T0, "pause", "", "", "", "", "", ""])).toEqual(["UNDECLARED"]);
    }
    expect(await bucket.admit({ now: T0, ids: ["a"] })).toEqual({ state: "UNDECLARED" });
    expect(await bucket.redis.exists(bucket.key("gate"))).toBe(0);
  });
});
