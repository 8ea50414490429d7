import { describe, expect, test } from "vitest";
import { list, texts } from "../../dist/redis/reply.js";
import { type Bucket, bucketOf, HOUR, listen, MINUTE, MS, outcomesOfTest, S, T0 } from "../helpers/scripts.js";

/** A bucket with these calls in the hands of workers, all started. */
async function withTaken(...ids: readonly string[]): Promise<Bucket> {
  const bucket = await bucketOf({ rate: "1000/s", lateness: 0 });
  await bucket.admit({ now: T0, ids });
  await bucket.take({ now: T0, worker: "A" });
  return bucket;
}

const LATER = T0 + S;

describe("order", () => {
  test("calls are taken in the order in which they were admitted, permits and requests alike", async () => {
    const bucket = await bucketOf({ rate: "1000/s", lateness: 0 });
    await using _listener = await listen("caller");
    await bucket.admit({ now: T0, ids: ["z", "y"] });
    await bucket.admit({ now: T0, ids: ["m"], kind: "permit", client: "caller" });
    await bucket.admit({ now: T0, ids: ["a", "n"] });
    const { calls } = await bucket.take({ now: T0 });
    expect(calls.map(({ id, kind }) => `${kind} ${id}`)).toEqual([
      "request z",
      "request y",
      "permit m",
      "request a",
      "request n",
    ]);
    expect(calls.map(({ slot }) => slot - T0)).toEqual([0, 1, 2, 3, 4].map((i) => i * MS));
    expect(calls[0]?.job.get("data")).toBe('{"of":"z"}');
  });

  test("no slot beyond the horizon is taken, and the reply says when to look again", async () => {
    const bucket = await bucketOf({ rate: "10/s", lateness: 0 });
    await bucket.admit({ now: T0, ids: ["a", "b"] });
    expect(await bucket.take({ now: T0 })).toMatchObject({ state: "wait", again: T0 + 80 * MS, calls: [{ id: "a" }] });
    expect(await bucket.take({ now: T0 + 79_999 })).toMatchObject({ state: "wait", calls: [] });
    const { calls } = await bucket.take({ now: T0 + 80 * MS });
    expect(calls).toMatchObject([{ id: "b", slot: T0 + 100 * MS }]);
  });

  test("a call that waited too long is dropped, with its outcome and its waiters, and takes no slot", async () => {
    const bucket = await bucketOf({ rate: "10/s", lateness: 0 });
    await bucket.admit({ now: T0, ids: ["a", "b"], maxWait: S });
    await bucket.admit({ now: T0, ids: ["c"] });
    await bucket.run("await", ["a", "reader", 60_000]);
    const { calls, dropped } = await bucket.take({ now: T0 + S + 1 });
    expect(dropped).toEqual([
      ["expired", "a", "", "reader"],
      ["expired", "b", ""],
    ]);
    expect(calls).toMatchObject([{ id: "c", slot: T0 + S + 1 }]);
    expect(await bucket.result("b")).toEqual(JSON.parse(outcomesOfTest.EXPIRED));
  });

  test.each(["take", "recover", "clear"] as const)(
    "ten thousand may wait for the outcome of one call: %s",
    async (how) => {
      const bucket = await bucketOf({ rate: "10/s", lateness: 0 });
      await bucket.admit({ now: T0, ids: ["a"], maxWait: S });
      const waiters = Array.from({ length: 10_000 }, (_, i) => `reader ${i}`);
      await bucket.redis.sadd(bucket.key("waiters:a"), ...waiters);
      const later = T0 + S + 1;
      const dropped =
        how === "clear"
          ? await bucket.clear(later)
          : (how === "take" ? await bucket.take({ now: later }) : await bucket.recover(later)).dropped;
      const [[why, id, client, ...told] = [], ...others] = dropped;
      expect([why, id, client, others]).toEqual([how === "clear" ? "cleared" : "expired", "a", "", []]);
      expect(told.toSorted()).toEqual(waiters.toSorted());
    },
  );
});

describe("concurrency", () => {
  test("counts requests and permits of all workers, and is freed by both ends", async () => {
    const bucket = await bucketOf({ rate: "1000/s", concurrency: 2, lateness: 0 });
    await using _listener = await listen("caller");
    await bucket.admit({ now: T0, ids: ["p"], kind: "permit", client: "caller" });
    await bucket.admit({ now: T0, ids: ["a", "b", "c"] });
    expect(await bucket.take({ now: LATER, worker: "A" })).toMatchObject({ state: "full", calls: [{ id: "a" }] });
    expect(await bucket.take({ now: LATER, worker: "B" })).toMatchObject({ state: "full", calls: [] });
    await bucket.release(LATER, "p");
    expect((await bucket.take({ now: LATER, worker: "B" })).calls).toMatchObject([{ id: "b" }]);
    await bucket.finish(LATER, "a", { token: "A" });
    expect((await bucket.take({ now: LATER, worker: "B" })).calls).toMatchObject([{ id: "c" }]);
  });

  test("of a process that fell silent is freed when its lease has run out", async () => {
    const bucket = await bucketOf({ rate: "1000/s", concurrency: 1, lateness: 0 });
    await bucket.admit({ now: T0, ids: ["a", "b"] });
    await bucket.take({ now: T0, lockMs: 15_000 });
    expect((await bucket.take({ now: T0 + 15 * S - 1 })).calls).toEqual([]);
    expect((await bucket.take({ now: T0 + 15 * S })).calls).toMatchObject([{ id: "b" }]);
  });

  test.each(["finish", "release"] as const)("%s wakes a worker that had found no room", async (how) => {
    const bucket = await bucketOf({ rate: "1000/s", concurrency: 1, lateness: 0 });
    await using listener = await listen("idle-worker", "caller");
    if (how === "release") await bucket.admit({ now: T0, ids: ["a"], kind: "permit", client: "caller" });
    await bucket.admit({ now: T0, ids: how === "release" ? ["b"] : ["a", "b"] });
    await bucket.take({ now: T0, worker: "idle-worker" });
    await listener.clear();
    if (how === "release") await bucket.release(LATER, "a");
    else await bucket.finish(LATER, "a", { token: "idle-worker" });
    expect(await listener.heard()).toEqual([{ to: "idle-worker", message: bucket.name }]);
  });
});

describe("the end of a call whose lock was lost", () => {
  test("(a) nobody has taken it since: its answer counts", async () => {
    const bucket = await withTaken("a");
    await bucket.unlock("a");
    expect(await bucket.finish(LATER, "a", { token: "A" })).toEqual([]);
    expect(await bucket.result("a")).toEqual({ ok: true, by: "A" });
    expect((await bucket.stats(LATER)).active).toBe(0);
  });

  test("(b) it is back in the queue: its answer counts, and it is not sent again", async () => {
    const bucket = await withTaken("a", "b");
    await bucket.unlock("a", "b");
    await bucket.recover(LATER);
    expect(await bucket.again()).toBe(2);
    expect(await bucket.finish(LATER, "a", { token: "A" })).toEqual([]);
    expect(await bucket.waiting()).toEqual(["b"]);
    expect(await bucket.again()).toBe(1);
    expect(await bucket.result("a")).toEqual({ ok: true, by: "A" });
  });

  test("(c) another worker has it: that one's answer counts", async () => {
    const bucket = await withTaken("a");
    await bucket.unlock("a");
    await bucket.recover(LATER);
    await bucket.take({ now: LATER, worker: "B" });
    expect(await bucket.finish(LATER, "a", { token: "A" })).toBe("LOST");
    expect(await bucket.result("a")).toBeUndefined();
    expect(await bucket.finish(LATER, "a", { token: "B" })).toEqual([]);
    expect(await bucket.result("a")).toEqual({ ok: true, by: "B" });
  });

  test.each(["completed", "failed"] as const)("(d) another worker has %s it: that stays", async (end) => {
    const bucket = await withTaken("a");
    await bucket.unlock("a");
    await bucket.recover(LATER);
    await bucket.take({ now: LATER, worker: "B" });
    await bucket.finish(LATER, "a", { token: "B", end });
    expect(await bucket.finish(LATER, "a", { token: "A" })).toBe("LOST");
    expect(await bucket.result("a")).toMatchObject({ by: "B" });
  });

  test("(e) it failed elsewhere and was put back by hand: the count of those that wait again stays right", async () => {
    const bucket = await withTaken("a");
    await bucket.unlock("a");
    await bucket.recover(LATER);
    await bucket.take({ now: LATER, worker: "B" });
    await bucket.finish(LATER, "a", { token: "B", end: "failed" });
    await bucket.retryFailed(LATER);
    await bucket.finish(LATER, "a", { token: "A" });
    expect(await bucket.again()).toBe(0);
    expect(await bucket.depth(LATER)).toBe(0);
  });

  test("(f) it was cancelled meanwhile: that stays", async () => {
    const bucket = await withTaken("a");
    await bucket.unlock("a");
    await bucket.recover(LATER);
    await bucket.cancel(LATER, "a");
    expect(await bucket.finish(LATER, "a", { token: "A" })).toBe("LOST");
    expect(await bucket.result("a")).toEqual(JSON.parse(outcomesOfTest.CANCELLED));
    expect(await bucket.again()).toBe(0);
  });

  test("in a bucket whose gate has expired, nothing is left behind", async () => {
    const bucket = await withTaken("a");
    await bucket.unlock("a");
    await bucket.redis.del(bucket.key("gate"));
    expect(await bucket.finish(LATER, "a", { token: "A" })).toEqual([]);
    expect(await bucket.redis.exists(bucket.key("gate"))).toBe(0);
  });
});

describe("calls that come back", () => {
  test("of a dead worker: to the head of the queue, in their order, with what BullMQ counts", async () => {
    const bucket = await withTaken("c", "a", "d", "b");
    await bucket.admit({ now: LATER, ids: ["e"] });
    await bucket.unlock("a", "b", "c");
    expect((await bucket.recover(LATER)).recovered.toSorted()).toEqual(["a", "b", "c"]);
    expect(await bucket.waiting()).toEqual(["c", "a", "b", "e"]);
    const { calls } = await bucket.take({ now: LATER, worker: "B", most: 1 });
    expect(calls[0]?.job.get("stc")).toBe("1");
  });

  test("do not count: they gave up their places when they started", async () => {
    const bucket = await bucketOf({ rate: "1000/s", capacity: 2, lateness: 0 });
    await bucket.admit({ now: T0, ids: ["a", "b"] });
    await bucket.take({ now: T0 });
    await bucket.admit({ now: LATER, ids: ["c", "d"] });
    await bucket.unlock("a", "b");
    await bucket.recover(LATER);
    expect(await bucket.waiting()).toEqual(["a", "b", "c", "d"]);
    expect(await bucket.depth(LATER)).toBe(2);
    expect(await bucket.admit({ now: LATER, ids: ["e"] })).toMatchObject({ state: "FULL", depth: 2 });
  });

  test("of a worker that closes: to the head, with the attempts made", async () => {
    const bucket = await withTaken("a");
    await bucket.admit({ now: LATER, ids: ["b"] });
    expect(await bucket.requeue(LATER, "a", "A", 2)).toBe("OK");
    expect(await bucket.waiting()).toEqual(["a", "b"]);
    expect(await bucket.depth(LATER)).toBe(1);
    const { calls } = await bucket.take({ now: LATER, worker: "B" });
    expect(calls.map(({ id, job }) => [id, job.get("am")])).toEqual([
      ["a", "2"],
      ["b", undefined],
    ]);
    expect(await bucket.again()).toBe(0);
  });

  test("before they have started: with their place, also when the slot was given back first", async () => {
    const bucket = await bucketOf({ rate: "10/s", capacity: 2, lateness: 0 });
    await bucket.admit({ now: T0, ids: ["a", "b"] });
    const { calls } = await bucket.take({ now: T0, horizon: S });
    await bucket.giveBack(T0, "b", calls[1]?.slot ?? 0);
    expect(await bucket.admit({ now: T0, ids: ["c", "d"] })).toMatchObject({ state: "FULL", depth: 1 });
    await bucket.requeue(T0, "b", "worker", 0);
    expect(await bucket.depth(T0)).toBe(1);
    expect(await bucket.again()).toBe(0);
    expect(await bucket.admit({ now: T0, ids: ["c", "d"] })).toMatchObject({ state: "FULL", depth: 1 });
  });

  test("are left alone by a worker that has lost them", async () => {
    const bucket = await withTaken("a");
    await bucket.unlock("a");
    await bucket.recover(LATER);
    await bucket.take({ now: LATER, worker: "B" });
    expect(await bucket.requeue(LATER, "a", "A")).toBe("LOST");
    expect((await bucket.stats(LATER)).active).toBe(1);
  });

  test("a waiting call that was removed by other hands does not spoil the count for ever", async () => {
    const bucket = await withTaken("a");
    await bucket.requeue(LATER, "a", "A");
    await bucket.redis.lrem(bucket.key("wait"), 0, "a");
    await bucket.redis.del(bucket.key("a"));
    await bucket.take({ now: LATER });
    expect(await bucket.depth(LATER)).toBe(0);
  });
});

describe("failed calls", () => {
  test("are listed, the latest first, and put back, the oldest first, as far as there is room", async () => {
    const bucket = await bucketOf({ rate: "1000/s", capacity: 3, lateness: 0 });
    await bucket.admit({ now: T0, ids: ["a", "b", "c"] });
    await bucket.take({ now: T0 });
    for (const [i, id] of ["a", "b", "c"].entries()) await bucket.finish(LATER + i * MS, id, { end: "failed" });
    const [, , calls] = await bucket.run("failed", [LATER, "list", 10]);
    expect(list(calls).map((call) => texts(call).slice(0, 2))).toEqual([
      ["c", "why"],
      ["b", "why"],
      ["a", "why"],
    ]);
    await bucket.admit({ now: LATER, ids: ["x"] });
    expect(await bucket.retryFailed(LATER)).toBe(2);
    expect(await bucket.waiting()).toEqual(["x", "a", "b"]);
    expect(await bucket.retryFailed(LATER)).toBe(0);
    expect(await bucket.depth(LATER)).toBe(3);
    expect(await bucket.result("a")).toBeUndefined();
    expect((await bucket.take({ now: LATER })).calls.map(({ id }) => id)).toEqual(["x", "a", "b"]);
  });
});

describe("keys", () => {
  const TTL = ["gate", "meta", "log"];
  const ttls = (bucket: Bucket): Promise<number[]> =>
    Promise.all(TTL.map((name) => bucket.redis.pttl(bucket.key(name))));

  test("of an idle bucket go by themselves, but not before its rules and pauses have", async () => {
    const bucket = await bucketOf({ rate: "10/s", rules: ["100/d"], lateness: 0 });
    await bucket.admit({ now: T0, ids: ["a"] });
    await bucket.take({ now: T0 });
    await bucket.recover(T0);
    const day = (24 * HOUR) / 1000;
    for (const ttl of await ttls(bucket)) expect(ttl).toBeGreaterThan(day);
    await bucket.control(T0, "pause", 48 * HOUR);
    expect(await bucket.redis.pttl(bucket.key("gate"))).toBeGreaterThan(2 * day);
  });

  test.each(["admit", "recover", "requeue", "retry"] as const)("of a bucket with work stay: %s", async (how) => {
    const bucket = await bucketOf({ rate: "10/s", rules: ["100/d"], lateness: 0 });
    await bucket.admit({ now: T0, ids: ["a"] });
    await bucket.take({ now: T0 });
    await bucket.take({ now: T0 });
    if (how === "admit") await bucket.admit({ now: T0, ids: ["b"] });
    if (how === "recover") {
      await bucket.unlock("a");
      await bucket.recover(LATER);
    }
    if (how === "requeue") await bucket.requeue(LATER, "a");
    if (how === "retry") {
      await bucket.finish(LATER, "a", { end: "failed" });
      await bucket.retryFailed(LATER);
    }
    expect(await bucket.waiting()).toHaveLength(1);
    for (const ttl of await ttls(bucket)) expect(ttl).toBeLessThan(0);
  });

  test.each(["grant", "declare", "cancel", "clear"] as const)("go when nothing waits: %s", async (how) => {
    const bucket = await bucketOf({ rate: "10/s" });
    if (how === "grant") await bucket.admit({ now: T0, ids: ["a"], kind: "permit" });
    if (how === "cancel" || how === "clear") await bucket.admit({ now: T0, ids: ["a"] });
    if (how === "cancel") await bucket.cancel(T0, "a");
    if (how === "clear") await bucket.clear(T0);
    expect(await bucket.redis.pttl(bucket.key("gate"))).toBeGreaterThan(0);
  });

  test("a policy that was set without end stays, with all that belongs to it", async () => {
    const bucket = await bucketOf({ rate: "10/s", rules: ["100/d"] });
    await bucket.admit({ now: T0, ids: ["a"], kind: "permit" });
    await bucket.set(T0, { capacity: 7 });
    await bucket.admit({ now: T0 + MINUTE, ids: ["b"], kind: "permit" });
    for (const name of ["gate", "log"]) expect(await bucket.redis.pttl(bucket.key(name))).toBe(-1);
  });
});
