import { describe, expect, test } from "vitest";
import { type Admitted, type Bucket, bucketOf, listen, MINUTE, MS, outcomesOfTest, S, T0 } from "../helpers/scripts.js";

const high = { priority: "high" } as const;
const low = { priority: "low" } as const;
const LATER = T0 + S;
const OPEN = { rate: "1000/s", lateness: 0 } as const;

/** Two of each: l1 l2 n1 n2 h1 h2, in this order of arrival. */
async function withSix(bucket: Bucket): Promise<void> {
  await bucket.admit({ now: T0, ids: ["l1", "l2"], terms: low });
  await bucket.admit({ now: T0, ids: ["n1", "n2"] });
  await bucket.admit({ now: T0, ids: ["h1", "h2"], terms: high });
}

const ids = (calls: readonly { readonly id: string }[]): string[] => calls.map(({ id }) => id);
const droppedOf = (reply: Admitted): unknown => (reply.state === "ADDED" ? reply.dropped.map(([id]) => id) : reply);

describe("order", () => {
  test("high before normal before low, first in, first out within each", async () => {
    const bucket = await bucketOf(OPEN);
    await withSix(bucket);
    expect(await bucket.waiting()).toEqual(["h1", "h2", "n1", "n2", "l1", "l2"]);
    const { calls } = await bucket.take({ now: T0 });
    expect(ids(calls)).toEqual(["h1", "h2", "n1", "n2", "l1", "l2"]);
    expect(calls.map(({ slot }) => slot - T0)).toEqual([0, 1, 2, 3, 4, 5].map((i) => i * MS));
    expect(await bucket.stats(T0 + S)).toMatchObject({ depth: 0, waiting: 0, active: 6 });
  });

  test("calls that come while others are taken one by one", async () => {
    const bucket = await bucketOf(OPEN);
    await withSix(bucket);
    const taken: string[] = [];
    for (let i = 0; i < 9; i++) {
      if (i === 1) await bucket.admit({ now: LATER, ids: ["h3"], terms: high });
      if (i === 4) await bucket.admit({ now: LATER, ids: ["n3"] });
      if (i === 6) await bucket.admit({ now: LATER, ids: ["h4"], terms: high });
      taken.push(...ids((await bucket.take({ now: LATER, most: 1, horizon: S })).calls));
    }
    expect(taken).toEqual(["h1", "h2", "h3", "n1", "n2", "n3", "h4", "l1", "l2"]);
  });

  test("permits and requests alike", async () => {
    const bucket = await bucketOf(OPEN);
    await using _listener = await listen("caller");
    await bucket.admit({ now: T0, ids: ["r"] });
    const permit = { now: T0, kind: "permit", client: "caller" } as const;
    await bucket.admit({ ...permit, ids: ["pl"], terms: low });
    await bucket.admit({ ...permit, ids: ["ph"], terms: high });
    await bucket.admit({ ...permit, ids: ["pn"] });
    const { calls } = await bucket.take({ now: T0 });
    expect(calls.map(({ id, kind }) => `${kind} ${id}`)).toEqual(["permit ph", "request r", "permit pn", "permit pl"]);
    expect(calls[0]).toMatchObject({ client: "caller" });
  });

  test("of a bulk, each call by its own priority", async () => {
    const bucket = await bucketOf(OPEN);
    await bucket.admit({ now: T0, ids: ["a", "b", "c", "d"], terms: [low, {}, high, {}] });
    expect(await bucket.waiting()).toEqual(["c", "b", "d", "a"]);
  });

  test("where nothing waits, the priority makes no difference: a permit is granted at once", async () => {
    const bucket = await bucketOf(OPEN);
    const granted = await bucket.admit({ now: T0, ids: ["p"], kind: "permit", client: "caller", terms: low });
    expect(granted).toMatchObject({ state: "GRANTED", slot: T0 });
  });

  test("a permit does not overtake a low call that waits by a grant at once, it waits before it", async () => {
    const bucket = await bucketOf(OPEN);
    await using _listener = await listen("caller");
    await bucket.admit({ now: T0, ids: ["l"], terms: low });
    const admitted = await bucket.admit({ now: T0, ids: ["p"], kind: "permit", client: "caller", terms: high });
    expect(admitted).toMatchObject({ state: "ADDED", firstAt: T0 });
    expect(ids((await bucket.take({ now: T0 })).calls)).toEqual(["p", "l"]);
  });
});

describe("expected start", () => {
  test("counts the calls before it, and not those behind it", async () => {
    const bucket = await bucketOf({ rate: "10/s", lateness: 0 });
    await withSix(bucket);
    const at = (more: number): object => ({ firstAt: T0 + more * 100 * MS, lastAt: T0 + more * 100 * MS });
    expect(await bucket.admit({ now: T0, ids: ["h3"], terms: high })).toMatchObject(at(2));
    expect(await bucket.admit({ now: T0, ids: ["n3"] })).toMatchObject(at(5));
    expect(await bucket.admit({ now: T0, ids: ["l3"], terms: low })).toMatchObject(at(8));
  });

  test("a high call that makes room by dropping a low one has not moved up for that", async () => {
    const bucket = await bucketOf({ rate: "10/s", capacity: 3, overflow: "drop-oldest", lateness: 0 });
    await bucket.admit({ now: T0, ids: ["h1", "h2"], terms: high });
    await bucket.admit({ now: T0, ids: ["l1"], terms: low });
    const added = await bucket.admit({ now: T0, ids: ["h3"], terms: high });
    expect(added).toMatchObject({ firstAt: T0 + 200 * MS, dropped: [["l1", ""]] });
    const next = await bucket.admit({ now: T0, ids: ["h4"], terms: high });
    expect(next).toMatchObject({ firstAt: T0 + 200 * MS, dropped: [["h1", ""]] });
  });
});

describe("capacity", () => {
  test("counts all of them", async () => {
    const bucket = await bucketOf({ rate: "10/s", capacity: 6, lateness: 0 });
    await withSix(bucket);
    expect(await bucket.depth(T0)).toBe(6);
    for (const terms of [high, {}, low]) {
      expect(await bucket.admit({ now: T0, ids: ["x"], terms })).toEqual({
        state: "FULL",
        depth: 6,
        capacity: 6,
        roomAt: T0,
      });
    }
    await bucket.take({ now: T0 });
    expect(await bucket.admit({ now: T0, ids: ["x"], terms: high })).toMatchObject({ state: "ADDED", depth: 6 });
  });

  test("drop-oldest drops the oldest of the lowest rank", async () => {
    const bucket = await bucketOf({ rate: "10/s", capacity: 6, overflow: "drop-oldest", lateness: 0 });
    await withSix(bucket);
    const reply = await bucket.admit({ now: T0, ids: ["h3", "h4", "h5"], terms: high });
    expect(droppedOf(reply)).toEqual(["l1", "l2", "n1"]);
    expect(await bucket.waiting()).toEqual(["h1", "h2", "h3", "h4", "h5", "n2"]);
    expect(await bucket.result("l1")).toEqual(JSON.parse(outcomesOfTest.DROPPED));
    expect(droppedOf(await bucket.admit({ now: T0, ids: ["h6", "h7"], terms: high }))).toEqual(["n2", "h1"]);
    expect(await bucket.depth(T0)).toBe(6);
  });

  test("but none of a higher rank than those that come", async () => {
    const bucket = await bucketOf({ rate: "10/s", capacity: 4, overflow: "drop-oldest", lateness: 0 });
    await bucket.admit({ now: T0, ids: ["n1", "n2"] });
    await bucket.admit({ now: T0, ids: ["h1", "h2"], terms: high });
    expect(await bucket.admit({ now: T0, ids: ["l1"], terms: low })).toMatchObject({ state: "FULL", depth: 4 });
    expect(await bucket.admit({ now: T0, ids: ["a", "b", "c"] })).toMatchObject({ state: "FULL" });
    expect(await bucket.waiting()).toEqual(["h1", "h2", "n1", "n2"]);
    expect(droppedOf(await bucket.admit({ now: T0, ids: ["a", "b", "c"], mode: "fit" }))).toEqual(["n1", "n2"]);
    expect(await bucket.waiting()).toEqual(["h1", "h2", "a", "b"]);
  });

  test("among several that come, the lowest decides", async () => {
    const bucket = await bucketOf({ rate: "10/s", capacity: 2, overflow: "drop-oldest", lateness: 0 });
    await bucket.admit({ now: T0, ids: ["n1", "n2"] });
    expect(await bucket.admit({ now: T0, ids: ["h", "l"], terms: [high, low] })).toMatchObject({ state: "FULL" });
    expect(droppedOf(await bucket.admit({ now: T0, ids: ["h", "n"], terms: [high, {}] }))).toEqual(["n1", "n2"]);
  });

  test("and none that waits for the second time", async () => {
    const bucket = await bucketOf({ rate: "1000/s", capacity: 2, overflow: "drop-oldest", lateness: 0 });
    await bucket.admit({ now: T0, ids: ["again"] });
    await bucket.take({ now: T0 });
    await bucket.requeue(LATER, "again");
    await bucket.admit({ now: LATER, ids: ["l"], terms: low });
    await bucket.admit({ now: LATER, ids: ["n"] });
    expect(droppedOf(await bucket.admit({ now: LATER, ids: ["h", "i"], terms: high }))).toEqual(["l", "n"]);
    expect(await bucket.waiting()).toEqual(["h", "i", "again"]);
    expect(await bucket.admit({ now: LATER, ids: ["m"] })).toMatchObject({ state: "FULL", depth: 2 });
  });
});

describe("leaving the queue", () => {
  test("cancel takes out any of them", async () => {
    const bucket = await bucketOf(OPEN);
    await withSix(bucket);
    for (const id of ["h1", "l2", "n1"]) expect(await bucket.cancel(T0, id)).toBe("CANCELLED");
    expect(await bucket.cancel(T0, "h1")).toBe("UNKNOWN");
    expect(await bucket.waiting()).toEqual(["h2", "n2", "l1"]);
    expect(await bucket.depth(T0)).toBe(3);
    expect(await bucket.result("h1")).toEqual(JSON.parse(outcomesOfTest.CANCELLED));
  });

  test("clear takes out all of them, and tells of each", async () => {
    const bucket = await bucketOf(OPEN);
    await withSix(bucket);
    const cleared = (await bucket.clear(T0)).map(([why, id]) => `${why} ${id}`);
    expect(cleared.toSorted()).toEqual(["h1", "h2", "l1", "l2", "n1", "n2"].map((id) => `cleared ${id}`));
    expect(await bucket.waiting()).toEqual([]);
    expect(await bucket.depth(T0)).toBe(0);
    expect((await bucket.take({ now: T0 })).state).toBe("empty");
  });

  test.each(["take", "recover"] as const)("%s drops what has waited too long in each rank", async (how) => {
    const bucket = await bucketOf(OPEN);
    await bucket.admit({ now: T0, ids: ["h1"], terms: high, maxWait: S });
    await bucket.admit({ now: T0, ids: ["n1"], maxWait: S });
    await bucket.admit({ now: T0, ids: ["l1"], terms: low, maxWait: S });
    await bucket.admit({ now: T0, ids: ["h2", "n2", "l2"], terms: [high, {}, low] });
    const now = T0 + 2 * S;
    const { dropped } = how === "take" ? await bucket.take({ now, most: 3 }) : await bucket.recover(now);
    const gone = dropped.map(([why, id]) => `${why} ${id}`);
    expect(gone.toSorted()).toEqual(["expired h1", "expired l1", "expired n1"]);
    expect(await bucket.result("l1")).toEqual(JSON.parse(outcomesOfTest.EXPIRED));
    expect(await bucket.waiting()).toEqual(how === "take" ? [] : ["h2", "n2", "l2"]);
  });

  test.each(["take", "recover"] as const)("%s drops the permits of clients that are gone", async (how) => {
    const bucket = await bucketOf(OPEN);
    await using _listener = await listen("alive");
    const permit = { now: T0, kind: "permit", horizon: -1 } as const;
    for (const terms of [high, {}, low]) {
      const rank = (terms as { priority?: string }).priority ?? "normal";
      await bucket.admit({ ...permit, ids: [`${rank}-dead`], client: "dead", terms });
      await bucket.admit({ ...permit, ids: [`${rank}-alive`], client: "alive", terms });
    }
    const { dropped } = how === "take" ? await bucket.take({ now: T0 }) : await bucket.recover(T0);
    expect(dropped.map(([why, id]) => `${why} ${id}`)).toEqual(["gone high-dead", "gone normal-dead", "gone low-dead"]);
    if (how === "take") return;
    expect(await bucket.waiting()).toEqual(["high-alive", "normal-alive", "low-alive"]);
  });

  test("a call that waits too long behind others is dropped when its own bound is over", async () => {
    const bucket = await bucketOf({ rate: "1/m", lateness: 0 });
    await bucket.admit({ now: T0, ids: ["first", "second"] });
    await bucket.admit({ now: T0, ids: ["h"], terms: { priority: "low", maxWaitMs: 2000 } });
    await bucket.admit({ now: T0, ids: ["n"], terms: { maxWaitMs: 3000 } });
    await bucket.admit({ now: T0, ids: ["last"] });
    expect((await bucket.recover(T0 + 2 * S)).dropped).toEqual([]);
    expect((await bucket.recover(T0 + 2 * S + 1)).dropped).toEqual([["expired", "h", ""]]);
    expect(await bucket.result("h")).toEqual({ ...JSON.parse(outcomesOfTest.EXPIRED), maxWait: 2000 });
    expect((await bucket.recover(T0 + MINUTE)).dropped).toEqual([["expired", "n", ""]]);
    expect(await bucket.waiting()).toEqual(["first", "second", "last"]);
    expect(await bucket.redis.exists(bucket.key("deadlines"))).toBe(0);
  });

  test("bounds of calls that have left the queue are forgotten, however they have left", async () => {
    const bucket = await bucketOf({ ...OPEN, capacity: 3, overflow: "drop-oldest" });
    await using _listener = await listen("caller");
    const terms = { maxWaitMs: 60_000 };
    await bucket.admit({ now: T0, ids: ["taken"], terms });
    await bucket.admit({ now: T0, ids: ["granted"], kind: "permit", client: "caller", terms });
    await bucket.take({ now: T0 });
    await bucket.admit({ now: T0, ids: ["oldest", "cancelled", "cleared", "another"], terms, mode: "fit" });
    await bucket.cancel(T0, "cancelled");
    await bucket.clear(T0);
    expect(await bucket.redis.exists(bucket.key("deadlines"))).toBe(0);
  });

  test("a bound is as near as it was when the clock is set back", async () => {
    const bucket = await bucketOf({ rate: "1/m", lateness: 0 });
    await bucket.admit({ now: T0, ids: ["first", "second"] });
    await bucket.admit({ now: T0, ids: ["a"], terms: { maxWaitMs: 3000 } });
    await bucket.take({ now: T0 });
    const back = T0 - 60 * MINUTE;
    expect((await bucket.recover(back)).dropped).toEqual([]);
    expect((await bucket.recover(back + 3 * S + 1)).dropped).toEqual([["expired", "a", ""]]);
  });

  test("one with a bound of its own that a worker has is not dropped", async () => {
    const bucket = await bucketOf(OPEN);
    await bucket.admit({ now: T0, ids: ["a", "b"], terms: { maxWaitMs: 1000 } });
    await bucket.take({ now: T0, most: 1 });
    expect((await bucket.recover(T0 + MINUTE)).dropped).toEqual([["expired", "b", ""]]);
    expect(await bucket.finish(T0 + MINUTE, "a")).toEqual([]);
  });
});

describe("coming back", () => {
  test("a call that a closing worker puts back stands at the head of the normal ones, whatever it was", async () => {
    const bucket = await bucketOf(OPEN);
    await withSix(bucket);
    await bucket.take({ now: T0 });
    await bucket.admit({ now: LATER, ids: ["h3", "n3", "l3"], terms: [high, {}, low] });
    for (const id of ["l1", "h1", "n1"]) expect(await bucket.requeue(LATER, id)).toBe("OK");
    // Admitted first: l1, n1, h1.
    expect(await bucket.waiting()).toEqual(["h3", "l1", "n1", "h1", "n3", "l3"]);
    expect(await bucket.again()).toBe(3);
    expect(await bucket.depth(LATER)).toBe(3);
    expect(ids((await bucket.take({ now: LATER })).calls)).toEqual(["h3", "l1", "n1", "h1", "n3", "l3"]);
    expect(await bucket.again()).toBe(0);
  });

  test("the calls of a dead worker do as well", async () => {
    const bucket = await bucketOf(OPEN);
    await withSix(bucket);
    await bucket.take({ now: T0, most: 5 });
    await bucket.unlock("h1", "h2", "n1", "n2", "l1");
    await bucket.admit({ now: LATER, ids: ["h3"], terms: high });
    const { recovered } = await bucket.recover(LATER);
    expect(recovered.toSorted()).toEqual(["h1", "h2", "l1", "n1", "n2"]);
    expect(await bucket.waiting()).toEqual(["h3", "l1", "n1", "n2", "h1", "h2", "l2"]);
    const { calls } = await bucket.take({ now: LATER });
    expect(calls[1]?.job.get("stc")).toBe("1");
  });

  test("a failed call that is retried by hand waits as a normal one", async () => {
    const bucket = await bucketOf(OPEN);
    await bucket.admit({ now: T0, ids: ["h"], terms: high });
    await bucket.take({ now: T0 });
    await bucket.finish(LATER, "h", { end: "failed" });
    await bucket.admit({ now: LATER, ids: ["n", "l"], terms: [{}, low] });
    expect(await bucket.retryFailed(LATER)).toBe(1);
    expect(await bucket.waiting()).toEqual(["n", "h", "l"]);
  });
});

describe("other terms", () => {
  test.each([high, {}, low])("an id of the caller's own is known, whatever its priority: %j", async (terms) => {
    const bucket = await bucketOf(OPEN);
    const call = { now: T0, ids: ["=mine"], repeated: true, terms } as const;
    expect(await bucket.admit(call)).toMatchObject({ known: [], depth: 1 });
    expect(await bucket.admit(call)).toMatchObject({ known: [0], knownAs: ["=mine"], depth: 1 });
    await bucket.take({ now: T0 });
    expect(await bucket.admit(call)).toMatchObject({ known: [0] });
    await bucket.finish(LATER, "=mine", { end: "failed" });
    await bucket.redis.del(bucket.key("result:=mine"));
    expect(await bucket.admit({ ...call, now: LATER })).toMatchObject({ known: [], depth: 1 });
    expect(ids((await bucket.take({ now: LATER })).calls)).toEqual(["=mine"]);
  });

  test("a rank that alone is left keeps the bucket attended and its keys alive", async () => {
    const bucket = await bucketOf({ rate: "1/m", lateness: 0 });
    await bucket.admit({ now: T0, ids: ["l0", "l"], terms: low });
    const { calls, state } = await bucket.take({ now: T0 });
    expect(ids(calls)).toEqual(["l0"]);
    expect(state).toBe("wait");
    expect(await bucket.stats(T0)).toMatchObject({ waiting: 1, depth: 1 });
    expect(await bucket.redis.pttl(bucket.key("gate"))).toBe(-1);
    await bucket.cancel(T0, "l");
    expect(await bucket.redis.pttl(bucket.key("gate"))).toBeGreaterThan(0);
  });
});
