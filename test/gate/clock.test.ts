import { describe, expect, test } from "vitest";
import { bucketOf, HOUR, MINUTE, MS, S, T0, type Bucket } from "../helpers/scripts.js";

const many = (bucket: Bucket, count: number, now: number, from = 0): Promise<(number | "EXPIRED")[]> =>
  Promise.all(Array.from({ length: count }, (_, i) => bucket.reserve(now, `c${from + i}`)));

describe.each([
  ["some seconds", 5 * S],
  ["an hour", HOUR],
  ["a year", 365 * 24 * HOUR],
])("the server's clock is set back by %s", (_name, by) => {
  test("the gate goes on as if it had not been", async () => {
    const bucket = await bucketOf({ rate: "10/s", burst: 3, lateness: 0 });
    await many(bucket, 5, T0);
    const now = T0 + 50 * MS - by;
    // Five were taken at T0, the last one 200 ms ahead; what has passed since is not known, so nothing has.
    expect(await many(bucket, 2, now, 5)).toEqual([now + 300 * MS, now + 400 * MS]);
  });

  test("rules count on, neither more nor less", async () => {
    const bucket = await bucketOf({ rate: "10/s", rules: ["3/m"], lateness: 0 });
    await many(bucket, 2, T0);
    await bucket.reserve(T0 + 30 * S, "later");
    const now = T0 + 30 * S - by;
    expect(await many(bucket, 2, now, 3)).toEqual([now + 30 * S, now + 30 * S + 100 * MS]);
    expect(await bucket.reserve(now + 40 * S, "third")).toBe(now + MINUTE);
  });

  test("a pause, a block and a changed policy last as long as they would have", async () => {
    const bucket = await bucketOf({ rate: "10/s", lateness: 0 });
    await bucket.control(T0, "pause", 10 * S);
    await bucket.set(T0, { limit: 1 }, 30 * S);
    const now = T0 - by;
    expect(await many(bucket, 2, now)).toEqual([now + 10 * S, now + 11 * S]);
    await bucket.control(now, "block", 20 * S);
    const earlier = now - by;
    expect(await bucket.admit({ now: earlier, ids: ["a"] })).toMatchObject({
      state: "BLOCKED",
      until: earlier + 20 * S,
    });
    expect(await bucket.field("limit")).toBe("1");
    await bucket.stats(earlier + 30 * S);
    expect(await bucket.field("limit")).toBe("10");
  });

  test("places, flights and the turn are freed when they would have been", async () => {
    const bucket = await bucketOf({ rate: "10/s", capacity: 3, concurrency: 2, lateness: 0 });
    await bucket.admit({ now: T0, ids: ["a", "b", "c"] });
    const taken = await bucket.take({ now: T0, horizon: S });
    expect(taken.calls.map(({ id }) => id)).toEqual(["a", "b"]);
    const now = T0 - by;
    expect(await bucket.depth(now)).toBe(2);
    expect(await bucket.depth(now + 100 * MS)).toBe(1);
    expect((await bucket.take({ now: now + 14 * S })).state).toBe("full");
    expect((await bucket.take({ now: now + 15 * S + 1 })).calls.map(({ id }) => id)).toEqual(["c"]);
  });
});

test("a slot that is far ahead is as far ahead of the new clock, for its holder too", async () => {
  const bucket = await bucketOf({ rate: "1/s", rules: ["9/m"], lateness: 0 });
  await many(bucket, 9, T0);
  const held = Number(await bucket.reserve(T0, "a"));
  expect(held).toBe(T0 + MINUTE);
  expect(await bucket.slot(T0 + 10 * S - HOUR, "a", "confirm", held)).toBe(T0 + 10 * S - HOUR + MINUTE);
});

test("a clock that is set back again and again, by less than is noticed at once, does not close the gate", async () => {
  const bucket = await bucketOf({ rate: "10/s", lateness: 0 });
  let now = T0;
  for (let i = 0; i < 50; i++) {
    const slot = Number(await bucket.reserve(now, `c${i}`));
    // The slots that are outstanding, and no more than the second from which on it is noticed.
    expect(slot - now).toBeLessThanOrEqual(i * 100 * MS + S);
    now -= 900 * MS;
  }
});

test("a clock that goes far ahead releases no more than the burst, and may come back", async () => {
  const bucket = await bucketOf({ rate: "10/s", burst: 2, lateness: 0 });
  await many(bucket, 4, T0);
  const ahead = T0 + HOUR;
  expect(await many(bucket, 4, ahead, 4)).toEqual([ahead, ahead, ahead + 100 * MS, ahead + 200 * MS]);
  const back = T0 + S;
  expect(await many(bucket, 2, back, 8)).toEqual([back + 300 * MS, back + 400 * MS]);
});

test("small steps back are waited out", async () => {
  const bucket = await bucketOf({ rate: "10/s", lateness: 0 });
  await many(bucket, 1, T0);
  expect(await bucket.reserve(T0 - 500 * MS, "a")).toBe(T0 + 100 * MS);
});
