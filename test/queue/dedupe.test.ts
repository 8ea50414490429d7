import { describe, expect, test } from "vitest";
import type { Dedupe } from "../../dist/queue/terms.js";
import { type Admitted, type Bucket, bucketOf, S, T0 } from "../helpers/scripts.js";

const LATER = T0 + S;
const OPEN = { rate: "1000/s", lateness: 0 } as const;
const join = (key: string): { readonly dedupe: Dedupe } => ({ dedupe: { key, mode: "join" } });
const refuse = (key: string): { readonly dedupe: Dedupe } => ({ dedupe: { key, mode: "refuse" } });

/** A bucket in which "first" waits under "k". */
async function withHolder(options: Parameters<typeof bucketOf>[0] = OPEN): Promise<Bucket> {
  const bucket = await bucketOf(options);
  await bucket.admit({ now: T0, ids: ["first"], terms: join("k") });
  return bucket;
}

const ask = (bucket: Bucket, id: string, terms = join("k"), now = LATER): Promise<Admitted> =>
  bucket.admit({ now, ids: [id], terms });

const isStored = async (bucket: Bucket, id: string): Promise<boolean> =>
  (await bucket.redis.exists(bucket.key(id))) === 1;

describe("while a call waits under a key", () => {
  test("another one joins it", async () => {
    const bucket = await withHolder();
    expect(await ask(bucket, "second")).toMatchObject({
      state: "ADDED",
      count: 1,
      known: [0],
      knownAs: ["first"],
      depth: 1,
    });
    expect(await isStored(bucket, "second")).toBe(false);
    expect(await bucket.waiting()).toEqual(["first"]);
  });

  test("another one is refused, if it wants to be", async () => {
    const bucket = await withHolder();
    expect(await ask(bucket, "second", refuse("k"))).toEqual({ state: "DUPLICATE", of: "first" });
    expect(await isStored(bucket, "second")).toBe(false);
  });

  test("other keys, other buckets and calls without a key are not in the way", async () => {
    const bucket = await withHolder();
    const other = await bucketOf(OPEN);
    expect(await ask(bucket, "second", refuse("K"))).toMatchObject({ known: [], depth: 2 });
    expect(await bucket.admit({ now: T0, ids: ["third"] })).toMatchObject({ known: [], depth: 3 });
    expect(await ask(other, "first", refuse("k"))).toMatchObject({ known: [], depth: 1 });
  });

  test.each(["requeue", "recover"] as const)("also one that a worker puts back unsent: %s", async (how) => {
    const bucket = await bucketOf({ rate: "1/s", lateness: 0 });
    await bucket.admit({ now: T0, ids: ["before"] });
    await bucket.admit({ now: T0, ids: ["first"], terms: { ...join("k"), maxWaitMs: 10_000 } });
    expect((await bucket.take({ now: T0, horizon: 2 * S, most: 2 })).calls).toHaveLength(2);
    const now = T0 + S / 2;
    if (how === "requeue") await bucket.requeue(now, "first");
    else {
      await bucket.unlock("first");
      await bucket.recover(now);
    }
    expect(await ask(bucket, "second", refuse("k"), now)).toEqual({ state: "DUPLICATE", of: "first" });
    // Its own bound ends it, also behind others.
    await bucket.admit({ now, ids: ["high"], terms: { priority: "high" } });
    expect(await bucket.recover(T0 + 11 * S)).toMatchObject({ dropped: [["expired", "first", ""]] });
    expect(await ask(bucket, "second", refuse("k"), T0 + 11 * S)).toMatchObject({ state: "ADDED", known: [] });
  });

  test("also one whose slot was over when its worker put it back, of which it knows that it was not sent", async () => {
    const bucket = await withHolder();
    await bucket.take({ now: T0 });
    await bucket.requeue(LATER, "first", "worker", 0, "1");
    expect(await ask(bucket, "second", refuse("k"))).toEqual({ state: "DUPLICATE", of: "first" });
    await bucket.take({ now: LATER });
    expect(await ask(bucket, "second", refuse("k"))).toMatchObject({ state: "ADDED", known: [] });
  });

  test.each(["", "é ☃ 🎈", '"quoted" \\ \u0000\n', "x".repeat(1000)])("any text is a key: %j", async (text) => {
    const bucket = await bucketOf(OPEN);
    await bucket.admit({ now: T0, ids: ["first"], terms: join(`k${text}`) });
    expect(await ask(bucket, "second", join(`k${text}`))).toMatchObject({ knownAs: ["first"] });
  });

  test("one that joins needs no room, drops nothing, and is accepted where the bucket is blocked", async () => {
    const bucket = await withHolder({ ...OPEN, capacity: 1, overflow: "drop-oldest" });
    expect(await ask(bucket, "second")).toMatchObject({ state: "ADDED", dropped: [], depth: 1 });
    await bucket.control(T0, "block", 60 * S, "why");
    expect(await ask(bucket, "second")).toMatchObject({ state: "ADDED", known: [0] });
    expect(await ask(bucket, "second", join("other"))).toMatchObject({ state: "BLOCKED" });
  });

  test.each(["high", "low"] as const)("also under priority %s", async (priority) => {
    const bucket = await bucketOf(OPEN);
    await bucket.admit({ now: T0, ids: ["first"], terms: { ...join("k"), priority } });
    expect(await ask(bucket, "second")).toMatchObject({ knownAs: ["first"] });
    await bucket.take({ now: LATER });
    expect(await ask(bucket, "second")).toMatchObject({ known: [] });
  });
});

describe("a bulk", () => {
  test("is joined within itself", async () => {
    const bucket = await bucketOf(OPEN);
    const terms = [join("k"), join("l"), join("k"), {}, join("l"), join("k")];
    const added = await bucket.admit({ now: T0, ids: ["a", "b", "c", "d", "e", "f"], terms });
    expect(added).toMatchObject({ count: 6, known: [2, 4, 5], knownAs: ["a", "b", "a"], depth: 3 });
    expect(await bucket.waiting()).toEqual(["a", "b", "d"]);
  });

  test("is refused as a whole when one of it is refused, and nothing is stored", async () => {
    const bucket = await bucketOf(OPEN);
    const ids = ["a", "b", "c"];
    const terms = [{}, refuse("k"), refuse("k")];
    for (const mode of ["all", "fit"] as const) {
      expect(await bucket.admit({ now: T0, ids, terms, mode })).toEqual({ state: "DUPLICATE", of: "b" });
    }
    expect(await bucket.waiting()).toEqual([]);
    expect(await ask(bucket, "later", refuse("k"))).toMatchObject({ state: "ADDED", known: [] });
  });

  test("that fits in part: those that join take no room, and one that has no room is not joined", async () => {
    const bucket = await withHolder({ ...OPEN, capacity: 3 });
    const ids = ["a", "b", "c", "d", "e"];
    const terms = [join("k"), join("l"), join("l"), join("m"), join("k")];
    const added = await bucket.admit({ now: T0, ids, terms, mode: "fit" });
    expect(added).toMatchObject({ count: 5, known: [0, 2, 4], knownAs: ["first", "b", "first"], depth: 3 });
    const more = [join("k"), join("n"), join("n"), join("k")];
    const part = await bucket.admit({ now: T0, ids: ["f", "g", "h", "i"], terms: more, mode: "fit" });
    expect(part).toMatchObject({ count: 1, known: [0], depth: 3 });
    expect(await ask(bucket, "later", refuse("n"))).toMatchObject({ state: "FULL" });
  });
});

describe("the key is free again", () => {
  test("from the start of its first attempt on, and it stays so while that call is sent", async () => {
    const bucket = await withHolder();
    await bucket.take({ now: T0 });
    expect(await ask(bucket, "second")).toMatchObject({ known: [], depth: 1 });
    expect(await ask(bucket, "third")).toMatchObject({ knownAs: ["second"] });
    // The first ends: that changes nothing for the second.
    await bucket.finish(LATER, "first");
    expect(await ask(bucket, "third", refuse("k"))).toEqual({ state: "DUPLICATE", of: "second" });
  });

  test.each(["requeue", "recover", "redeliver"] as const)(
    "a call that has come back (%s) does not hold it",
    async (how) => {
      const bucket = await withHolder();
      await bucket.take({ now: T0 });
      if (how === "requeue") await bucket.requeue(LATER, "first");
      else if (how === "redeliver") await bucket.redeliver(LATER, "first", 1000);
      else {
        await bucket.unlock("first");
        await bucket.recover(LATER);
      }
      expect(await ask(bucket, "second", refuse("k"))).toMatchObject({ state: "ADDED", known: [] });
      expect(await ask(bucket, "third")).toMatchObject({ knownAs: ["second"] });
      // When it goes, or ends, the second still holds the key.
      const now = LATER + 10 * S;
      await bucket.recover(now);
      expect((await bucket.take({ now, most: 1 })).calls).toMatchObject([
        { id: how === "redeliver" ? "second" : "first" },
      ]);
      expect(await ask(bucket, "third", refuse("k"), now)).toMatchObject(
        how === "redeliver" ? { state: "ADDED", known: [] } : { state: "DUPLICATE", of: "second" },
      );
    },
  );

  test.each([
    ["cancelled", (bucket: Bucket) => bucket.cancel(LATER, "first")],
    ["cleared", (bucket: Bucket) => bucket.clear(LATER)],
    ["dropped as the oldest", (bucket: Bucket) => bucket.admit({ now: LATER, ids: ["x"] })],
  ] as const)("when it was %s", async (_how, end) => {
    const bucket = await withHolder({ ...OPEN, capacity: 1, overflow: "drop-oldest" });
    await end(bucket);
    expect(await isStored(bucket, "first")).toBe(false);
    expect(await ask(bucket, "second", refuse("k"))).toMatchObject({ state: "ADDED", known: [] });
    expect(await bucket.waiting()).toEqual(["second"]);
  });

  test.each(["take", "recover"] as const)("when it has expired: %s", async (how) => {
    const bucket = await bucketOf(OPEN);
    await bucket.admit({ now: T0, ids: ["first"], terms: join("k"), maxWait: S });
    const now = T0 + 2 * S;
    // Until somebody notices, it waits.
    expect(await ask(bucket, "second", join("k"), now)).toMatchObject({ knownAs: ["first"] });
    await (how === "take" ? bucket.take({ now }) : bucket.recover(now));
    expect(await ask(bucket, "second", refuse("k"), now)).toMatchObject({ state: "ADDED", known: [] });
  });

  test.each([
    ["removed", (bucket: Bucket) => bucket.redis.del(bucket.key("first"))],
    ["taken", (bucket: Bucket) => bucket.redis.hset(bucket.key("first"), "processedOn", "1")],
  ] as const)("when its job was %s by other hands", async (_how, change) => {
    const bucket = await withHolder();
    await change(bucket);
    expect(await ask(bucket, "second", refuse("k"))).toMatchObject({ state: "ADDED", known: [] });
  });

  test("what is remembered of keys goes with the calls", async () => {
    const bucket = await withHolder();
    await bucket.admit({ now: T0, ids: ["a", "b", "c"], terms: [join("a"), join("b"), join("c")] });
    await bucket.cancel(T0, "b");
    await bucket.take({ now: T0 });
    expect(await bucket.redis.exists(bucket.key("dedupe"))).toBe(0);
  });
});

describe("a failed call that is retried by hand", () => {
  async function withFailed(): Promise<Bucket> {
    const bucket = await withHolder();
    await bucket.take({ now: T0 });
    await bucket.finish(T0, "first", { end: "failed" });
    return bucket;
  }

  test("waits under its key again", async () => {
    const bucket = await withFailed();
    expect(await bucket.retryFailed(LATER)).toBe(1);
    expect(await ask(bucket, "second", refuse("k"))).toEqual({ state: "DUPLICATE", of: "first" });
  });

  test("gives it up when its worker, given up for lost, has its answer after all", async () => {
    const bucket = await withFailed();
    await bucket.retryFailed(LATER);
    await bucket.finish(LATER, "first");
    expect(await bucket.redis.exists(bucket.key("dedupe"))).toBe(0);
  });

  test("leaves it to a call that has come meanwhile", async () => {
    const bucket = await withFailed();
    await ask(bucket, "second");
    await bucket.retryFailed(LATER);
    expect(await ask(bucket, "third")).toMatchObject({ knownAs: ["second"] });
    await bucket.cancel(LATER, "first");
    expect(await ask(bucket, "third")).toMatchObject({ knownAs: ["second"] });
  });
});

describe("an admission whose reply was lost is asked again", () => {
  test.each([join("k"), refuse("k")])("and neither duplicates nor refuses itself: %j", async (terms) => {
    const bucket = await bucketOf(OPEN);
    const call = { now: T0, ids: ["a"], terms };
    await bucket.admit(call);
    const again = { ...call, repeated: true };
    expect(await bucket.admit(again)).toMatchObject({ state: "ADDED", known: [0], knownAs: ["a"], depth: 1 });
    await bucket.take({ now: T0 });
    expect(await bucket.admit(again)).toMatchObject({ state: "ADDED", knownAs: ["a"] });
    await bucket.finish(T0, "a");
    expect(await bucket.admit(again)).toMatchObject({ state: "ADDED", knownAs: ["a"] });
    expect(await bucket.waiting()).toEqual([]);
    // The key was free for others all the while.
    expect(await ask(bucket, "b", refuse("k"))).toMatchObject({ state: "ADDED", known: [] });
    expect(await bucket.admit(again)).toMatchObject({ state: "ADDED", knownAs: ["a"] });
  });

  test("one that had joined another call joins it again", async () => {
    const bucket = await withHolder();
    await ask(bucket, "second");
    expect(await bucket.admit({ now: LATER, ids: ["second"], terms: join("k"), repeated: true })).toMatchObject({
      knownAs: ["first"],
    });
    expect(await bucket.depth(LATER)).toBe(1);
  });

  test("a bulk that was added is known, with those of it that had joined others", async () => {
    const bucket = await bucketOf(OPEN);
    const bulk = { now: T0, ids: ["a", "b", "c"], terms: [join("k"), join("k"), {}] };
    await bucket.admit(bulk);
    expect(await bucket.admit({ ...bulk, repeated: true })).toMatchObject({
      count: 3,
      known: [0, 1, 2],
      knownAs: ["a", "a", "c"],
      depth: 2,
    });
  });
});

test("a call under an id of the caller's own and a key: the id comes first", async () => {
  const bucket = await withHolder();
  const mine = { now: LATER, ids: ["=mine"], repeated: true } as const;
  expect(await bucket.admit({ ...mine, terms: join("k") })).toMatchObject({ knownAs: ["first"] });
  expect(await bucket.admit({ ...mine, terms: join("l") })).toMatchObject({ known: [] });
  expect(await bucket.admit({ ...mine, terms: refuse("l") })).toMatchObject({ knownAs: ["=mine"] });
  expect(await bucket.admit({ ...mine, terms: refuse("k") })).toMatchObject({ knownAs: ["=mine"] });
});
