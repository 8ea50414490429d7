import { describe, expect, test } from "vitest";
import { bucketOf, HOUR, listen, MS, outcomesOfTest, S, T0 } from "../helpers/scripts.js";

describe("a full bucket", () => {
  test("says how full it is and when there is room", async () => {
    const bucket = await bucketOf({ rate: "10/s", capacity: 3, lateness: 0 });
    expect(await bucket.admit({ now: T0, ids: ["a", "b", "c"] })).toMatchObject({ state: "ADDED", depth: 3 });
    const full = await bucket.admit({ now: T0, ids: ["d"] });
    expect(full).toEqual({ state: "FULL", depth: 3, capacity: 3, roomAt: T0 });
    expect(await bucket.waiting()).toEqual(["a", "b", "c"]);
  });

  test("has room when the next slot comes, and at that moment", async () => {
    const bucket = await bucketOf({ rate: "10/s", capacity: 2, lateness: 0 });
    await bucket.reserve(T0, "before");
    await bucket.admit({ now: T0, ids: ["a", "b"] });
    const full = await bucket.admit({ now: T0, ids: ["c"] });
    expect(full).toMatchObject({ state: "FULL", roomAt: T0 + 100 * MS });
    await bucket.take({ now: T0 + 90 * MS });
    expect(await bucket.admit({ now: T0 + 99_999, ids: ["c"] })).toMatchObject({
      state: "FULL",
      roomAt: T0 + 100 * MS,
    });
    expect(await bucket.admit({ now: T0 + 100 * MS, ids: ["c"] })).toMatchObject({ state: "ADDED", depth: 2 });
  });

  test("has room for several when as many have left: first those that hold a slot", async () => {
    const bucket = await bucketOf({ rate: "10/s", capacity: 4, lateness: 0 });
    await bucket.admit({ now: T0, ids: ["0", "a", "b", "c"] });
    await bucket.take({ now: T0, horizon: 100 * MS });
    await bucket.admit({ now: T0, ids: ["d"] });
    // a leaves at 100 ms, b at 200 ms, c at 300 ms.
    const full = await bucket.admit({ now: T0, ids: ["x", "y", "z"] });
    expect(full).toEqual({ state: "FULL", depth: 4, capacity: 4, roomAt: T0 + 300 * MS });
  });

  test("refuses a bulk as a whole, or takes what fits, in order", async () => {
    const bucket = await bucketOf({ rate: "10/s", capacity: 3, lateness: 0 });
    await bucket.admit({ now: T0, ids: ["a"] });
    expect(await bucket.admit({ now: T0, ids: ["b", "c", "d"] })).toMatchObject({ state: "FULL", depth: 1 });
    const fit = await bucket.admit({ now: T0, ids: ["b", "c", "d"], mode: "fit" });
    expect(fit).toMatchObject({ state: "ADDED", count: 2, depth: 3 });
    expect(await bucket.waiting()).toEqual(["a", "b", "c"]);
  });

  test("counts calls with a slot to come, and not those in flight", async () => {
    const bucket = await bucketOf({ rate: "10/s", capacity: 2, lateness: 0 });
    await bucket.admit({ now: T0, ids: ["a", "b"] });
    await bucket.take({ now: T0, horizon: S });
    expect(await bucket.depth(T0)).toBe(1);
    expect(await bucket.depth(T0 + 100 * MS)).toBe(0);
  });

  test("a lower capacity drops nothing, and nothing comes in until there is room", async () => {
    const bucket = await bucketOf({ rate: "10/s", capacity: 5, lateness: 0 });
    await bucket.admit({ now: T0, ids: ["a", "b", "c", "d"] });
    await bucket.set(T0, { capacity: 2 });
    expect(await bucket.admit({ now: T0, ids: ["e"], mode: "fit" })).toMatchObject({
      state: "FULL",
      depth: 4,
      capacity: 2,
      roomAt: T0 + 200 * MS,
    });
  });
});

describe("drop-oldest", () => {
  const options = { rate: "10/s", capacity: 3, overflow: "drop-oldest", lateness: 0 } as const;

  test("drops the oldest, keeps its outcome, and says who is to be told", async () => {
    const bucket = await bucketOf(options);
    await bucket.admit({ now: T0, ids: ["p"], kind: "permit", client: "caller", horizon: -1 });
    await bucket.admit({ now: T0, ids: ["a", "b"] });
    await bucket.run("await", ["a", "reader", 60_000]);
    const added = await bucket.admit({ now: T0, ids: ["c", "d"] });
    expect(added).toMatchObject({
      state: "ADDED",
      depth: 3,
      dropped: [
        ["p", "caller"],
        ["a", "", "reader"],
      ],
    });
    expect(await bucket.waiting()).toEqual(["b", "c", "d"]);
    expect(await bucket.result("a")).toEqual(JSON.parse(outcomesOfTest.DROPPED));
    expect(await bucket.result("p")).toBeUndefined();
  });

  test("drops nothing when that would not make room enough", async () => {
    const bucket = await bucketOf(options);
    await bucket.admit({ now: T0, ids: ["0", "a", "b"] });
    await bucket.take({ now: T0, horizon: 100 * MS, most: 3 });
    await bucket.admit({ now: T0, ids: ["c"] });
    expect(await bucket.depth(T0)).toBe(3);
    expect(await bucket.admit({ now: T0, ids: ["x", "y", "z"] })).toMatchObject({ state: "FULL", depth: 3 });
    expect(await bucket.waiting()).toEqual(["b", "c"]);
  });

  test("does not drop what has no place to give: a call that waits for the second time", async () => {
    const bucket = await bucketOf(options);
    await bucket.admit({ now: T0, ids: ["a"] });
    await bucket.take({ now: T0 });
    await bucket.requeue(T0 + S, "a");
    await bucket.admit({ now: T0 + S, ids: ["b", "c", "d"] });
    expect(await bucket.admit({ now: T0 + S, ids: ["e"] })).toMatchObject({ state: "ADDED", dropped: [["b", ""]] });
    expect(await bucket.waiting()).toEqual(["a", "c", "d", "e"]);
    expect(await bucket.depth(T0 + S)).toBe(3);
  });
});

describe("expected start", () => {
  test.each([
    ["the rate alone", { rate: "3/s", lateness: "10ms" }],
    ["a burst", { rate: "3/s", burst: 4, lateness: 0 }],
    ["a burst that is partly used", { rate: "7/s", burst: 4, lateness: "10ms" }],
  ] as const)("exact with %s", async (_name, options) => {
    const bucket = await bucketOf(options);
    await bucket.reserve(T0, "before1");
    await bucket.reserve(T0, "before2");
    const ids = Array.from({ length: 12 }, (_, i) => `c${i + 10}`);
    const starts: number[] = [];
    for (const id of ids) {
      const added = await bucket.admit({ now: T0 + 50 * MS, ids: [id] });
      starts.push(added.state === "ADDED" ? added.firstAt : Number.NaN);
    }
    const { calls } = await bucket.take({ now: T0 + 50 * MS, horizon: HOUR });
    expect(calls.map(({ id }) => id)).toEqual(ids);
    expect(calls.map(({ slot }) => slot)).toEqual(starts);
  });

  test("of a bulk: of its first and of its last call", async () => {
    const bucket = await bucketOf({ rate: "10/s", lateness: 0 });
    await bucket.admit({ now: T0, ids: ["a", "b"] });
    const added = await bucket.admit({ now: T0, ids: ["c", "d", "e"] });
    expect(added).toMatchObject({ firstAt: T0 + 200 * MS, lastAt: T0 + 400 * MS });
  });

  test("with rules: never later than the real one, and exact where one rule governs", async () => {
    const bucket = await bucketOf({ rate: "10/s", burst: 3, rules: ["4/s", "9/m"], lateness: 0 });
    await bucket.reserve(T0, "before");
    const ids = Array.from({ length: 25 }, (_, i) => `c${i + 10}`);
    const starts: number[] = [];
    for (const id of ids) {
      const added = await bucket.admit({ now: T0, ids: [id] });
      starts.push(added.state === "ADDED" ? added.firstAt : Number.NaN);
    }
    const { calls } = await bucket.take({ now: T0, horizon: HOUR });
    for (const [i, { slot }] of calls.entries()) expect(starts[i]).toBeLessThanOrEqual(slot);
    // The tenth start of all must wait for the first to leave the minute.
    expect([starts[8], calls[8]?.slot]).toEqual([T0 + 60 * S, T0 + 60 * S]);
  });

  test("with a pause, counted from its end", async () => {
    const bucket = await bucketOf({ rate: "10/s", burst: 5, lateness: 0 });
    await bucket.control(T0, "pause", 10 * S);
    const added = await bucket.admit({ now: T0, ids: ["a", "b"] });
    expect(added).toMatchObject({ firstAt: T0 + 10 * S, lastAt: T0 + 10 * S + 100 * MS });
    expect(await bucket.stats(T0)).toMatchObject({ expectedAt: T0 + 10 * S + 200 * MS });
  });
});

describe("a permit", () => {
  const permit = { kind: "permit", client: "caller" } as const;

  test("is granted at once in an idle bucket", async () => {
    const bucket = await bucketOf({ rate: "10/s", concurrency: 5 });
    const granted = await bucket.admit({ now: T0, ids: ["a"], ...permit });
    expect(granted).toEqual({ state: "GRANTED", slot: T0, late: 10 * MS, concurrency: 5 });
    expect(await bucket.waiting()).toEqual([]);
  });

  test("is granted a slot that is near, and no other", async () => {
    const bucket = await bucketOf({ rate: "10/s", lateness: 0 });
    await bucket.admit({ now: T0, ids: ["a"], ...permit });
    expect(await bucket.admit({ now: T0 + 79_999, ids: ["b"], ...permit })).toMatchObject({ state: "ADDED" });
    await bucket.cancel(T0 + 79_999, "b");
    const granted = await bucket.admit({ now: T0 + 80 * MS, ids: ["c"], ...permit });
    expect(granted).toMatchObject({ state: "GRANTED", slot: T0 + 100 * MS });
    expect(await bucket.depth(T0 + 80 * MS)).toBe(1);
  });

  test("overtakes nobody", async () => {
    const bucket = await bucketOf({ rate: "10/s" });
    await bucket.admit({ now: T0, ids: ["a"] });
    expect(await bucket.admit({ now: T0 + S, ids: ["b"], ...permit })).toMatchObject({ state: "ADDED" });
    expect(await bucket.waiting()).toEqual(["a", "b"]);
  });

  test("waits for a place in flight", async () => {
    const bucket = await bucketOf({ rate: "10/s", concurrency: 1 });
    await bucket.admit({ now: T0, ids: ["a"], ...permit });
    expect(await bucket.admit({ now: T0 + S, ids: ["b"], ...permit })).toMatchObject({ state: "ADDED" });
    await bucket.cancel(T0 + S, "b");
    await bucket.release(T0 + S, "a");
    expect(await bucket.admit({ now: T0 + S, ids: ["c"], ...permit })).toMatchObject({ state: "GRANTED" });
  });

  test("is refused by a bucket that is full of slots to come", async () => {
    const bucket = await bucketOf({ rate: "1000/s", capacity: 2, lateness: 0 });
    const states: string[] = [];
    for (const id of ["a", "b", "c", "d"]) states.push((await bucket.admit({ now: T0, ids: [id], ...permit })).state);
    expect(states).toEqual(["GRANTED", "GRANTED", "GRANTED", "FULL"]);
  });

  test("of a process that is gone, or whose lease is, takes no slot", async () => {
    const bucket = await bucketOf({ rate: "10/s", lateness: 0 });
    await using _listener = await listen("lively", "silent");
    for (const [id, client, lease] of [
      ["a", "killed", 60 * S],
      ["b", "silent", S],
      ["c", "lively", 60 * S],
    ] as const) {
      await bucket.admit({ now: T0, ids: [id], kind: "permit", client, lease, horizon: -1 });
    }
    const { calls, dropped } = await bucket.take({ now: T0 + 2 * S });
    expect(dropped).toEqual([
      ["gone", "a", "killed"],
      ["gone", "b", "silent"],
    ]);
    expect(calls).toMatchObject([{ id: "c", slot: T0 + 2 * S, kind: "permit", client: "lively" }]);
  });
});

describe("an admission that arrives late, or again", () => {
  test("late: adds nothing and takes no slot", async () => {
    const bucket = await bucketOf({ rate: "10/s", lateness: 0 });
    for (const kind of ["permit", "request"] as const) {
      expect(await bucket.admit({ now: T0, ids: ["a"], kind, until: T0 - 1 })).toEqual({ state: "LATE" });
    }
    expect(await bucket.stats(T0)).toMatchObject({ depth: 0, nextSlot: T0 });
    expect(await bucket.admit({ now: T0, ids: ["a"], until: T0 })).toMatchObject({ state: "ADDED" });
  });

  test("again: adds nothing twice, wherever the call is by now", async () => {
    const bucket = await bucketOf({ rate: "10/s", lateness: 0 });
    const again = (): ReturnType<typeof bucket.admit> => bucket.admit({ now: T0, ids: ["a"], repeated: true });
    await bucket.admit({ now: T0, ids: ["a"] });
    expect(await again()).toMatchObject({ state: "ADDED", count: 1, known: [0] });
    expect(await bucket.waiting()).toEqual(["a"]);
    await bucket.take({ now: T0 });
    expect(await again()).toMatchObject({ state: "ADDED", count: 1 });
    await bucket.finish(T0, "a");
    expect(await again()).toMatchObject({ state: "ADDED", count: 1 });
    expect(await bucket.stats(T0)).toMatchObject({ waiting: 0, active: 0 });
  });

  test("again, of a bulk of which a part was accepted: promises no more than that", async () => {
    const bucket = await bucketOf({ rate: "10/s", capacity: 2, lateness: 0 });
    const ids = ["a", "b", "c", "d"];
    expect(await bucket.admit({ now: T0, ids, mode: "fit" })).toMatchObject({ count: 2 });
    const again = await bucket.admit({ now: T0, ids, mode: "fit", repeated: true });
    expect(again).toMatchObject({ state: "ADDED", count: 2, known: [0, 1] });
    expect(await bucket.waiting()).toEqual(["a", "b"]);
  });

  test("again, when the lost reply was a grant: the same slot", async () => {
    const bucket = await bucketOf({ rate: "10/s", lateness: 0, concurrency: 3 });
    await bucket.reserve(T0, "before");
    const now = T0 + 90 * MS;
    const first = await bucket.admit({ now, ids: ["a"], kind: "permit" });
    expect(await bucket.admit({ now: now + MS, ids: ["a"], kind: "permit", repeated: true })).toEqual(first);
    expect(await bucket.stats(now + MS)).toMatchObject({ depth: 1, nextSlot: T0 + 200 * MS });
  });
});
