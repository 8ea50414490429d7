import { describe, expect, test } from "vitest";
import { type Bucket, bucketOf, HOUR, MINUTE, MS, S, T0 } from "../helpers/scripts.js";

/** The keys of a bucket that would stay for ever. */
async function lasting({ redis, prefix, name }: Bucket): Promise<string[]> {
  const keys = await redis.keys(`${prefix}:{${name}}:*`);
  const lives = await Promise.all(keys.map((key) => redis.pttl(key)));
  return keys.filter((_key, i) => lives[i] === -1).map((key) => key.replace(/^.*}:/, ""));
}

/** A bucket whose keys go by themselves, since nothing waits in it. */
async function idle(): Promise<Bucket> {
  const bucket = await bucketOf({ rate: "100/s", lateness: 0, concurrency: 5, rules: ["1000/h"] });
  await bucket.admit({ now: T0, ids: ["first"], kind: "permit", client: "caller" });
  await bucket.release(T0, "first");
  expect(await lasting(bucket)).toEqual([]);
  return bucket;
}

describe("what comes anew in an idle bucket goes with it", () => {
  test("a flight whose process dies", async () => {
    const bucket = await idle();
    await bucket.admit({ now: T0 + S, ids: ["a"], kind: "permit", client: "caller" });
    expect(await bucket.redis.exists(bucket.key("inflight"))).toBe(1);
    expect(await lasting(bucket)).toEqual([]);
  });

  test("a slot far ahead, and one that is recalled", async () => {
    const bucket = await idle();
    await bucket.control(T0 + S, "pause", HOUR, "");
    await bucket.reserve(T0 + S, "a");
    expect(await bucket.redis.exists(bucket.key("later"))).toBe(1);
    expect(await lasting(bucket)).toEqual([]);
    await bucket.control(T0 + S, "resume");
    expect(await bucket.redis.exists(bucket.key("recalled"))).toBe(1);
    expect(await lasting(bucket)).toEqual([]);
  });

  test("a worker that has looked", async () => {
    const bucket = await idle();
    expect((await bucket.take({ now: T0 + S })).state).toBe("empty");
    expect(await bucket.idle()).toEqual(["worker"]);
    expect(await lasting(bucket)).toEqual([]);
  });

  test("the lease of a client that has been silent", async () => {
    const bucket = await idle();
    await bucket.run("renew", [T0 + S, `${bucket.prefix}:at:caller`, 15 * S, 1, 0, 0, "gone"]);
    expect(await bucket.redis.exists(bucket.key("leases"))).toBe(1);
    expect(await lasting(bucket)).toEqual([]);
  });
});

test("while a call is active it stays, and with it what the sweep looks at; then all of it goes", async () => {
  const bucket = await idle();
  await bucket.admit({ now: T0 + S, ids: ["a"] });
  await bucket.take({ now: T0 + S });
  await bucket.recover(T0 + S);
  // The first pass has made the keys go; the next one marks the active call anew.
  await bucket.recover(T0 + MINUTE);
  expect((await lasting(bucket)).toSorted()).toEqual(["a", "active"]);
  await bucket.finish(T0 + MINUTE, "a");
  expect(await lasting(bucket)).toEqual([]);
});

test("what rules and quotas have counted outlives an idle bucket, and does not stay for ever", async () => {
  const rules = [{ algorithm: "fixed-window", limit: 5, per: "1d" }] as const;
  const bucket = await bucketOf({ rate: "100/s", lateness: 0, rules });
  const quota = "token-bucket:2:31536000000000:1";
  await bucket.admit({ now: T0, ids: ["a"], kind: "permit", client: "caller", quota });
  await bucket.release(T0, "a");
  const life = async (key: string): Promise<number> => (await bucket.redis.pttl(bucket.key(key))) * MS;
  const untilMidnight = 24 * HOUR - (T0 % (24 * HOUR));
  expect(await life("gate")).toBeLessThan(2 * HOUR);
  expect(Math.abs((await life("rule:fixed-window:5:86400000000")) - untilMidnight)).toBeLessThan(MINUTE);
  expect(Math.abs((await life(`quota:${quota}:`)) - 365 * 24 * HOUR)).toBeLessThan(MINUTE);
  expect(await lasting(bucket)).toEqual([]);
});
