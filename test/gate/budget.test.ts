import { expect, test } from "vitest";
import { type Bucket, bucketOf, HOUR, listen, MINUTE, S, T0 } from "../helpers/scripts.js";

const OPEN = { rate: "1000/s", lateness: 0 } as const;

/** Spends retries at `now` until none is left, at most `most`; returns how many there were. */
async function spendAll(bucket: Bucket, now: number, ratio = 0.2, most = 150): Promise<number> {
  const spent = await Promise.all(Array.from({ length: most }, () => bucket.budget(now, ratio)));
  const count = spent.filter(Boolean).length;
  // Those that were allowed came first.
  expect(spent.slice(0, count)).not.toContain(false);
  return count;
}

let calls = 0;
/** Has so many durable calls started, which end at once. */
async function start(bucket: Bucket, count: number, now: number): Promise<void> {
  const ids = Array.from({ length: count }, () => `call${calls++}`);
  await bucket.admit({ now, ids });
  expect((await bucket.take({ now, horizon: S, most: count })).calls).toHaveLength(count);
  await Promise.all(ids.map((id) => bucket.finish(now, id)));
}

test("100 are saved up from the beginning, and no more", async () => {
  const bucket = await bucketOf(OPEN);
  expect(await spendAll(bucket, T0)).toBe(100);
  expect(await spendAll(bucket, T0)).toBe(0);
  expect(await spendAll(bucket, T0 + 24 * HOUR)).toBe(100);
});

test("ten a minute come back, each in its time", async () => {
  const bucket = await bucketOf(OPEN);
  await spendAll(bucket, T0);
  expect(await bucket.budget(T0 + 6 * S - 1, 0)).toBe(false);
  expect(await bucket.budget(T0 + 6 * S, 0)).toBe(true);
  expect(await bucket.budget(T0 + 6 * S, 0)).toBe(false);
  expect(await spendAll(bucket, T0 + 6 * S + MINUTE, 0)).toBe(10);
});

test("asking in vain costs nothing", async () => {
  const bucket = await bucketOf(OPEN);
  await spendAll(bucket, T0);
  for (let i = 1; i < 12; i++) expect(await bucket.budget(T0 + i * 500_000, 0)).toBe(false);
  expect(await bucket.budget(T0 + 6 * S, 0)).toBe(true);
});

test.each([
  [0, 0],
  [0.2, 5],
  [1, 25],
  [2, 50],
  [100, 100],
])("each first attempt allows %d: 25 of them %i", async (ratio, allowed) => {
  const bucket = await bucketOf(OPEN);
  await spendAll(bucket, T0, ratio);
  await start(bucket, 25, T0);
  expect(await spendAll(bucket, T0, ratio)).toBe(allowed);
});

test("further attempts, calls that come back and permits allow none", async () => {
  const bucket = await bucketOf(OPEN);
  await using _listener = await listen("caller");
  await bucket.admit({ now: T0, ids: ["a", "b"] });
  await bucket.take({ now: T0 });
  await spendAll(bucket, T0, 1);
  expect(await spendAll(bucket, T0, 1)).toBe(0);
  const now = T0 + S;
  await bucket.reserve(now, "a");
  await bucket.requeue(now, "a");
  await bucket.redeliver(now, "b", 1000);
  await bucket.recover(now + 2 * S);
  await bucket.admit({ now, ids: ["p"], kind: "permit", client: "caller" });
  expect((await bucket.take({ now: now + 2 * S })).calls).toHaveLength(3);
  expect(await bucket.budget(now + 2 * S, 1)).toBe(false);
});

test("a clock that is set back allows none, and does not hold back those of later", async () => {
  const bucket = await bucketOf(OPEN);
  await spendAll(bucket, T0);
  const back = T0 - HOUR;
  expect(await bucket.budget(back, 0)).toBe(false);
  expect(await spendAll(bucket, back + MINUTE, 0)).toBe(10);
});

test("of other buckets nothing is taken", async () => {
  const [one, other] = [await bucketOf(OPEN), await bucketOf(OPEN)];
  await spendAll(one, T0);
  expect(await other.budget(T0, 0)).toBe(true);
});
