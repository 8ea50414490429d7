import { describe, expect, test } from "vitest";
import { bucketOf, listen, MS, S, T0 } from "../helpers/scripts.js";

const ids = (count: number, from = 0): string[] => Array.from({ length: count }, (_, i) => `c${100 + from + i}`);

describe("waking", () => {
  test("an admission to an empty bucket wakes exactly one idle worker, the next ones nobody", async () => {
    const bucket = await bucketOf({ rate: "10/s" });
    await using listener = await listen("w1", "w2", "w3", "all");
    for (const worker of ["w1", "w2", "w3"]) await bucket.take({ now: T0, worker });
    expect(await bucket.admit({ now: T0 + MS, ids: ["a"] })).toMatchObject({ attended: true });
    expect(await bucket.admit({ now: T0 + MS, ids: ["b"] })).toMatchObject({ attended: true });
    const heard = await listener.heard();
    expect(heard).toHaveLength(1);
    expect(heard[0]?.message).toBe(bucket.name);
    expect(await bucket.turn()).toBe(heard[0]?.to);
  });

  test("idle workers that are dead are passed over", async () => {
    const bucket = await bucketOf({ rate: "10/s" });
    await using listener = await listen("alive");
    for (const [i, worker] of ["alive", "dead1", "dead2"].entries()) await bucket.take({ now: T0 + i, worker });
    expect(await bucket.admit({ now: T0 + S, ids: ["a"] })).toMatchObject({ attended: true });
    expect(await listener.heard()).toEqual([{ to: "alive", message: bucket.name }]);
    expect(await bucket.idle()).toEqual([]);
  });

  test("a bucket that no worker knows is called out to all of them", async () => {
    const bucket = await bucketOf({ rate: "10/s" });
    await using listener = await listen("all");
    expect(await bucket.admit({ now: T0, ids: ["a"] })).toMatchObject({ attended: true });
    expect(await listener.heard()).toEqual([{ to: "all", message: bucket.name }]);
  });

  test("nobody there: says so", async () => {
    const bucket = await bucketOf({ rate: "10/s" });
    expect(await bucket.admit({ now: T0, ids: ["a"] })).toMatchObject({ state: "ADDED", attended: false });
  });

  test("a worker that was woken and does not come loses the turn after two seconds", async () => {
    const bucket = await bucketOf({ rate: "10/s" });
    await using listener = await listen("hung", "other");
    await bucket.take({ now: T0, worker: "other" });
    await bucket.take({ now: T0 + 1, worker: "hung" });
    await bucket.admit({ now: T0 + MS, ids: ["a"] });
    await bucket.admit({ now: T0 + S, ids: ["b"] });
    expect((await listener.heard()).map(({ to }) => to)).toEqual(["hung"]);
    await bucket.admit({ now: T0 + 3 * S, ids: ["c"] });
    expect((await listener.heard()).map(({ to }) => to)).toEqual(["hung", "other"]);
  });
});

describe("the turn", () => {
  test("one worker waits for the next slot, the others sleep until woken", async () => {
    const bucket = await bucketOf({ rate: "1/s", lateness: 0 });
    await bucket.admit({ now: T0, ids: ids(3) });
    expect(await bucket.take({ now: T0, worker: "w1" })).toMatchObject({ state: "wait", again: T0 + 980 * MS });
    expect(await bucket.turn()).toBe("w1");
    const second = await bucket.take({ now: T0 + MS, worker: "w2" });
    expect(second.state).toBe("wait");
    // Only in case the first one dies.
    expect(second.again).toBe(T0 + S + 2 * S);
    expect(await bucket.idle()).toEqual(["w2"]);
  });

  test("passes on after a second, to whoever has been idle longest", async () => {
    const bucket = await bucketOf({ rate: "10/s", lateness: 0 });
    await using listener = await listen("w1", "w2", "w3");
    await bucket.admit({ now: T0, ids: ids(50) });
    for (const worker of ["w1", "w2", "w3"]) await bucket.take({ now: T0, worker });
    await listener.clear();
    for (let now = T0 + 80 * MS; now <= T0 + 980 * MS; now += 100 * MS) await bucket.take({ now, worker: "w1" });
    expect(await bucket.turn()).toBe("w1");
    await bucket.take({ now: T0 + 1080 * MS, worker: "w1" });
    expect(await bucket.turn()).toBe("w2");
    expect(await listener.heard()).toEqual([{ to: "w2", message: bucket.name }]);
    expect(await bucket.idle()).toEqual(["w3", "w1"]);
  });

  test("stays where it is when nobody else is there, or only the dead", async () => {
    const bucket = await bucketOf({ rate: "1/s", lateness: 0 });
    await bucket.admit({ now: T0, ids: ids(9) });
    await bucket.take({ now: T0, worker: "w1" });
    await bucket.take({ now: T0 + MS, worker: "dead" });
    for (let i = 1; i <= 4; i++) await bucket.take({ now: T0 + i * S, worker: "w1" });
    expect(await bucket.turn()).toBe("w1");
  });

  test("goes to another worker when its holder has died", async () => {
    const bucket = await bucketOf({ rate: "1/s", lateness: 0 });
    await bucket.admit({ now: T0, ids: ids(9) });
    await bucket.take({ now: T0, worker: "dies" });
    const { again } = await bucket.take({ now: T0 + MS, worker: "w2" });
    const { calls } = await bucket.take({ now: again, worker: "w2" });
    expect(calls).toMatchObject([{ id: "c101" }]);
    expect(await bucket.turn()).toBe("w2");
  });

  test("is given up with the last call, so that the next admission wakes somebody", async () => {
    const bucket = await bucketOf({ rate: "10/s" });
    await using listener = await listen("w1");
    await bucket.admit({ now: T0, ids: ["a"] });
    expect((await bucket.take({ now: T0, worker: "w1" })).state).toBe("empty");
    expect(await bucket.turn()).toBe("");
    await bucket.admit({ now: T0 + MS, ids: ["b"] });
    expect(await listener.heard()).toEqual([{ to: "w1", message: bucket.name }]);
  });

  test("is passed on by a worker that can carry nothing now", async () => {
    const bucket = await bucketOf({ rate: "1/s", lateness: 0 });
    await using listener = await listen("busy", "idle");
    await bucket.take({ now: T0, worker: "idle" });
    await bucket.take({ now: T0 + 1, worker: "busy" });
    await bucket.admit({ now: T0 + MS, ids: ids(3) });
    expect(await bucket.turn()).toBe("busy");
    await listener.clear();
    expect((await bucket.take({ now: T0 + MS, worker: "busy", most: 0 })).calls).toEqual([]);
    expect(await listener.heard()).toEqual([{ to: "idle", message: bucket.name }]);
    expect(await bucket.turn()).toBe("idle");
  });

  test("somebody helps when more is due than one can carry", async () => {
    const bucket = await bucketOf({ rate: "1000/s", burst: 50, lateness: 0 });
    await using listener = await listen("w1", "w2");
    for (const worker of ["w2", "w1"]) await bucket.take({ now: T0 - (worker === "w2" ? 2 : 1), worker });
    await bucket.admit({ now: T0, ids: ids(20) });
    await listener.clear();
    expect(await bucket.take({ now: T0, worker: "w1", most: 10 })).toMatchObject({ state: "more" });
    expect(await listener.heard()).toEqual([{ to: "w2", message: bucket.name }]);
    await listener.clear();
    await bucket.take({ now: T0, worker: "w1", most: 10 });
    expect(await listener.heard()).toEqual([]);
  });

  test("a sweep has somebody look where calls wait and nobody does", async () => {
    const bucket = await bucketOf({ rate: "10/s" });
    await using listener = await listen("w1");
    await bucket.admit({ now: T0, ids: ["a"] });
    await bucket.redis.zadd(bucket.key("idle"), T0, `${bucket.prefix}:at:w1`);
    await bucket.recover(T0 + 10 * S);
    expect(await listener.heard()).toEqual([{ to: "w1", message: bucket.name }]);
  });
});
