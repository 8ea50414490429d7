import { describe, expect, test } from "vitest";
import { type Bucket, bucketOf, HOUR, listen, MINUTE, outcomesOfTest, S, T0 } from "../helpers/scripts.js";

const OPEN = { rate: "1000/s", lateness: 0 } as const;
const LATER = T0 + S;

/** A bucket in which these calls have failed, the last one at {@link LATER}, and come back a minute after that. */
async function withAside(options: Parameters<typeof bucketOf>[0], ...ids: readonly string[]): Promise<Bucket> {
  const bucket = await bucketOf(options);
  await bucket.admit({ now: T0, ids });
  await bucket.take({ now: T0 });
  for (const id of ids) expect(await bucket.redeliver(LATER, id, 60_000)).toBe("OK");
  return bucket;
}
const DUE = LATER + MINUTE;

describe("a call that is put aside", () => {
  test("is neither waiting nor active, and occupies no place", async () => {
    const bucket = await withAside({ ...OPEN, capacity: 2 }, "a", "b");
    expect(await bucket.stats(LATER)).toMatchObject({ depth: 0, waiting: 0, active: 0, redelivering: 2 });
    expect(await bucket.again()).toBe(2);
    expect(await bucket.aside()).toEqual(["a", "b"]);
    expect(await bucket.admit({ now: LATER, ids: ["c", "d"] })).toMatchObject({ state: "ADDED", depth: 2 });
    expect(await bucket.admit({ now: LATER, ids: ["e"] })).toEqual({
      state: "FULL",
      depth: 2,
      capacity: 2,
      roomAt: LATER,
    });
  });

  test("gives up its lock and its place in flight, and whoever found no room is woken", async () => {
    const bucket = await bucketOf({ ...OPEN, concurrency: 1 });
    await using listener = await listen("worker");
    await bucket.admit({ now: T0, ids: ["a", "b"] });
    expect(await bucket.take({ now: T0 })).toMatchObject({ state: "full", calls: [{ id: "a" }] });
    await bucket.redeliver(LATER, "a", 60_000);
    expect(await listener.heard()).toEqual([{ to: "worker", message: bucket.name }]);
    expect(await bucket.redis.exists(bucket.key("a:lock"))).toBe(0);
    expect((await bucket.take({ now: LATER })).calls).toMatchObject([{ id: "b" }]);
  });

  test("stays when its bucket is idle: its keys do not go", async () => {
    const bucket = await withAside(OPEN, "a");
    expect(await bucket.take({ now: LATER })).toMatchObject({ state: "empty" });
    await bucket.recover(LATER);
    await bucket.control(LATER, "resume");
    for (const key of ["gate", "a", "delayed", "meta"]) {
      expect([key, await bucket.redis.pttl(bucket.key(key))]).toEqual([key, -1]);
    }
    expect(await bucket.again()).toBe(1);
  });

  test("is known under its id, and is awaited as before", async () => {
    const bucket = await withAside(OPEN, "=mine");
    expect(await bucket.admit({ now: LATER, ids: ["=mine"], repeated: true })).toMatchObject({ known: [0] });
    expect(await bucket.run("await", ["=mine", "reader", 60_000])).toEqual(["WAITING"]);
    await bucket.recover(DUE);
    await bucket.take({ now: DUE });
    expect(await bucket.finish(DUE, "=mine")).toEqual(["reader"]);
  });

  test("is cancelled", async () => {
    const bucket = await withAside(OPEN, "a", "b");
    expect(await bucket.cancel(LATER, "a")).toBe("CANCELLED");
    expect(await bucket.result("a")).toEqual(JSON.parse(outcomesOfTest.CANCELLED));
    expect(await bucket.again()).toBe(1);
    expect(await bucket.depth(LATER)).toBe(0);
    expect(await bucket.aside()).toEqual(["b"]);
    expect(await bucket.cancel(LATER, "b")).toBe("CANCELLED");
    // Now the bucket may go.
    expect(await bucket.redis.pttl(bucket.key("gate"))).toBeGreaterThan(0);
  });

  test("is cleared with those that wait", async () => {
    const bucket = await withAside(OPEN, "a", "b");
    await bucket.admit({ now: LATER, ids: ["c"] });
    expect((await bucket.clear(LATER)).map(([, id]) => id)).toEqual(["c", "a", "b"]);
    expect(await bucket.stats(LATER)).toMatchObject({ depth: 0, waiting: 0, redelivering: 0 });
    expect(await bucket.again()).toBe(0);
    expect(await bucket.result("b")).toEqual(JSON.parse(outcomesOfTest.CANCELLED));
  });

  test("is not dropped to make room", async () => {
    const bucket = await withAside({ ...OPEN, capacity: 1, overflow: "drop-oldest" }, "a");
    await bucket.admit({ now: LATER, ids: ["b"] });
    expect(await bucket.admit({ now: LATER, ids: ["c"] })).toMatchObject({ dropped: [["b", ""]] });
    await bucket.recover(DUE);
    expect(await bucket.waiting()).toEqual(["c", "a"]);
    expect(await bucket.admit({ now: DUE, ids: ["d"] })).toMatchObject({ dropped: [["c", ""]], depth: 1 });
    expect(await bucket.waiting()).toEqual(["a", "d"]);
  });
});

describe("when it is due", () => {
  test("the sweep puts it at the end of the queue, and not before", async () => {
    const bucket = await withAside(OPEN, "a");
    await bucket.admit({ now: LATER, ids: ["b", "l", "h"], terms: [{}, { priority: "low" }, { priority: "high" }] });
    await bucket.recover(DUE - 1000);
    expect(await bucket.waiting()).toEqual(["h", "b", "l"]);
    await bucket.recover(DUE);
    expect(await bucket.waiting()).toEqual(["h", "b", "a", "l"]);
    expect(await bucket.aside()).toEqual([]);
    // It had its place when it first came.
    expect(await bucket.depth(DUE)).toBe(3);
    expect(await bucket.again()).toBe(1);
    await bucket.admit({ now: DUE, ids: ["c"] });
    expect(await bucket.waiting()).toEqual(["h", "b", "a", "c", "l"]);
  });

  test.each(["recover", "take"] as const)(
    "a call that comes back from its worker does not fall behind it: %s",
    async (how) => {
      const bucket = await withAside(OPEN, "a");
      await bucket.admit({ now: LATER, ids: ["b", "c"] });
      await bucket.take({ now: LATER, most: how === "take" ? 1 : 2 });
      if (how === "take") await bucket.take({ now: DUE, most: 1, worker: "other" });
      else await bucket.recover(DUE);
      expect(await bucket.waiting()).toEqual(["a"]);
      await bucket.requeue(DUE, "b");
      expect(await bucket.waiting()).toEqual(["b", "a"]);
    },
  );

  test("a worker that takes calls puts it there, too", async () => {
    const bucket = await withAside(OPEN, "a", "b");
    await bucket.admit({ now: DUE, ids: ["c"] });
    expect((await bucket.take({ now: DUE })).calls.map(({ id }) => id)).toEqual(["c", "a", "b"]);
    expect(await bucket.stats(DUE + S)).toMatchObject({ depth: 0, active: 3, redelivering: 0 });
    expect(await bucket.again()).toBe(0);
  });

  test("several come in the order in which they were put aside", async () => {
    const bucket = await withAside(OPEN, "z", "m", "a");
    await bucket.recover(DUE);
    expect(await bucket.waiting()).toEqual(["z", "m", "a"]);
  });

  test("more than a sweep takes come with the next one", { timeout: 20_000 }, async () => {
    const ids = Array.from({ length: 2100 }, (_, i) => `c${i}`);
    const bucket = await bucketOf({ rate: "1000000/s", lateness: 0, capacity: 3000 });
    await bucket.admit({ now: T0, ids });
    await bucket.take({ now: T0, most: 150 });
    const due = (LATER / 1000) * 4096;
    await bucket.redis.del(bucket.key("wait"));
    await bucket.redis.zadd(bucket.key("delayed"), ...ids.flatMap((id, i) => [due + i, id]));
    await bucket.recover(LATER);
    expect(await bucket.waiting()).toEqual(ids.slice(0, 2000));
  });

  test("it is taken with what it has been through, and takes the cost that it had", async () => {
    const bucket = await bucketOf(OPEN);
    await bucket.admit({ now: T0, ids: ["a"], terms: { cost: 7, priority: "low" } });
    await bucket.take({ now: T0 });
    await bucket.redeliver(LATER, "a", 60_000, { attempts: 5, round: 2 });
    await bucket.recover(DUE);
    const { calls } = await bucket.take({ now: DUE });
    expect(calls).toMatchObject([{ id: "a", cost: 7, slot: DUE }]);
    const job = calls[0]?.job;
    expect([job?.get("am"), job?.get("ac"), job?.get("rd"), job?.get("stc")]).toEqual(["5", "0", "2", undefined]);
    expect(job?.get("data")).toBe('{"of":"a"}');
    expect(job?.get("timestamp")).toBe(String(T0 / 1000));
  });

  test("waiting does not end it: it may have been sent", async () => {
    const bucket = await bucketOf(OPEN);
    await bucket.admit({ now: T0, ids: ["a"], maxWait: 2 * S });
    await bucket.take({ now: T0 });
    await bucket.redeliver(LATER, "a", 60_000);
    expect((await bucket.recover(DUE)).dropped).toEqual([]);
    expect(await bucket.take({ now: DUE })).toMatchObject({ calls: [{ id: "a" }], dropped: [] });
  });

  test("the sweep says that there is work, before and after", async () => {
    const bucket = await withAside(OPEN, "a");
    await bucket.redis.del(bucket.key("stalled-check"));
    const [, , , , before, rest] = await bucket.run("recover", [LATER, 60_000, 60_000, "{}"]);
    expect([before, rest]).toEqual([0, 1]);
    const [, , , , after, none] = await bucket.run("recover", [DUE, 60_000, 60_000, "{}"]);
    expect([after, none]).toEqual([1, 0]);
  });

  test("a worker that sleeps is woken for it", async () => {
    const bucket = await withAside(OPEN, "a");
    await using listener = await listen("worker");
    expect((await bucket.take({ now: LATER })).state).toBe("empty");
    await bucket.recover(DUE);
    expect(await listener.heard()).toEqual([{ to: "worker", message: bucket.name }]);
  });

  test("it comes back once more, dies with its worker, and ends", async () => {
    const bucket = await withAside(OPEN, "a");
    await bucket.recover(DUE);
    await bucket.take({ now: DUE });
    expect(await bucket.redeliver(DUE, "a", 1000, { attempts: 6, round: 2 })).toBe("OK");
    expect(await bucket.again()).toBe(1);
    await bucket.recover(DUE + S);
    await bucket.take({ now: DUE + S });
    await bucket.unlock("a");
    expect((await bucket.recover(DUE + 2 * S)).recovered).toEqual(["a"]);
    const { calls } = await bucket.take({ now: DUE + 2 * S });
    expect([calls[0]?.job.get("rd"), calls[0]?.job.get("stc")]).toEqual(["2", "1"]);
    // That worker was heard of: it is no longer said of the call that it may have been sent by somebody who died.
    await bucket.redeliver(DUE + 2 * S, "a", 1000, { attempts: 7, round: 3 });
    await bucket.recover(DUE + 3 * S);
    const [last] = (await bucket.take({ now: DUE + 3 * S })).calls;
    expect([last?.job.get("rd"), last?.job.get("stc")]).toEqual(["3", undefined]);
    await bucket.finish(DUE + 3 * S, "a", { end: "failed" });
    expect(await bucket.stats(DUE + 3 * S)).toMatchObject({ depth: 0, waiting: 0, active: 0, redelivering: 0 });
    expect(await bucket.again()).toBe(0);
    // By hand, it has all its attempts and redeliveries again.
    await bucket.retryFailed(DUE + 3 * S);
    const [again] = (await bucket.take({ now: DUE + 3 * S })).calls;
    expect([again?.job.get("rd"), again?.job.get("am"), again?.job.get("stc")]).toEqual([
      undefined,
      undefined,
      undefined,
    ]);
  });
});

describe("whose call it is", () => {
  test("a worker that another one has followed puts nothing aside", async () => {
    const bucket = await bucketOf(OPEN);
    await bucket.admit({ now: T0, ids: ["a"] });
    await bucket.take({ now: T0, worker: "A" });
    await bucket.unlock("a");
    await bucket.recover(LATER);
    await bucket.take({ now: LATER, worker: "B" });
    expect(await bucket.redeliver(LATER, "a", 1000, { token: "A" })).toBe("LOST");
    expect(await bucket.stats(LATER)).toMatchObject({ active: 1, redelivering: 0 });
    expect(await bucket.again()).toBe(0);
    expect(await bucket.redeliver(LATER, "a", 1000, { token: "B" })).toBe("OK");
    expect(await bucket.redeliver(LATER, "a", 1000, { token: "B" })).toBe("LOST");
    expect(await bucket.finish(LATER, "a", { token: "B" })).toBe("LOST");
    expect(await bucket.again()).toBe(1);
  });

  test.each(["active", "back in the queue"])(
    "a lock that ran out loses nothing while nobody has taken it: %s",
    async (where) => {
      const bucket = await bucketOf(OPEN);
      await bucket.admit({ now: T0, ids: ["a"] });
      await bucket.take({ now: T0 });
      await bucket.unlock("a");
      if (where !== "active") expect((await bucket.recover(LATER)).recovered).toEqual(["a"]);
      expect(await bucket.redeliver(LATER, "a", 1000)).toBe("OK");
      expect(await bucket.stats(LATER)).toMatchObject({ depth: 0, waiting: 0, active: 0, redelivering: 1 });
      expect(await bucket.again()).toBe(1);
      await bucket.recover(LATER + S);
      expect(await bucket.waiting()).toEqual(["a"]);
    },
  );

  test("a call that is gone is lost", async () => {
    const bucket = await bucketOf(OPEN);
    expect(await bucket.redeliver(T0, "nobody", 1000)).toBe("LOST");
    expect(await bucket.again()).toBe(0);
  });
});

test("when the clock is set back, it comes as long after as it was to", async () => {
  const bucket = await withAside(OPEN, "a", "b");
  const back = LATER - HOUR;
  await bucket.recover(back);
  await bucket.recover(back + MINUTE - 1000);
  expect(await bucket.waiting()).toEqual([]);
  await bucket.recover(back + MINUTE);
  expect(await bucket.waiting()).toEqual(["a", "b"]);
});
