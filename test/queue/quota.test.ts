import { createClient, defineLimits, QuotaExceededError } from "spillway";
import { describe, expect, test } from "vitest";
import { redisUrl, uniquePrefix } from "../helpers/redis.js";
import { bucketOf, HOUR, S, T0 } from "../helpers/scripts.js";

const QUOTA = "fixed-window:2:60000000";
const of = (producer: string, cost = 1) => ({ producer, cost });

describe("a quota at the door", () => {
  test("refuses what a producer brings too much, says when there is room, and leaves the others alone", async () => {
    const bucket = await bucketOf({ rate: "1/s" });
    const bring = async (now: number, id: string, producer: string) =>
      bucket.admit({ now, ids: [id], quota: QUOTA, terms: of(producer) });
    expect(await bring(T0, "a1", "a")).toMatchObject({ state: "ADDED" });
    expect(await bring(T0, "a2", "a")).toMatchObject({ state: "ADDED" });
    expect(await bring(T0 + S, "a3", "a")).toEqual({ state: "QUOTA", at: T0 + 60 * S, producer: "a" });
    expect(await bring(T0 + S, "b1", "b")).toMatchObject({ state: "ADDED" });
    expect(await bring(T0 + 60 * S, "a3", "a")).toMatchObject({ state: "ADDED" });
    expect(await bucket.waiting()).toEqual(["a1", "a2", "b1", "a3"]);
  });

  test("a permit that is granted at once counts, too", async () => {
    const bucket = await bucketOf({ rate: "1000/s", lateness: 0 });
    const bring = async (now: number, id: string) =>
      (await bucket.admit({ now, ids: [id], kind: "permit", client: "c", quota: QUOTA })).state;
    expect([await bring(T0, "a"), await bring(T0 + S, "b"), await bring(T0 + 2 * S, "c")]).toEqual([
      "GRANTED",
      "GRANTED",
      "QUOTA",
    ]);
  });

  test("what is refused for another reason does not count", async () => {
    const bucket = await bucketOf({ rate: "1/s", capacity: 1 });
    await bucket.admit({ now: T0, ids: ["a"], quota: QUOTA });
    expect(await bucket.admit({ now: T0, ids: ["b"], quota: QUOTA })).toMatchObject({ state: "FULL" });
    await bucket.cancel(T0, "a");
    expect(await bucket.admit({ now: T0, ids: ["b"], quota: QUOTA })).toMatchObject({ state: "ADDED" });
  });

  test("a call that is known already does not count again", async () => {
    const bucket = await bucketOf({ rate: "1/s" });
    for (let i = 0; i < 5; i++) {
      const again = await bucket.admit({ now: T0, ids: ["a"], repeated: true, quota: QUOTA });
      expect(again).toMatchObject({ state: "ADDED" });
    }
    expect(await bucket.admit({ now: T0, ids: ["b"], repeated: true, quota: QUOTA })).toMatchObject({ state: "ADDED" });
    expect(await bucket.admit({ now: T0, ids: ["c"], repeated: true, quota: QUOTA })).toMatchObject({ state: "QUOTA" });
  });

  test("of many calls all are refused or, with fit, those that are too many", async () => {
    const bucket = await bucketOf({ rate: "1/s" });
    const ids = ["a", "b", "c"];
    expect(await bucket.admit({ now: T0, ids, quota: QUOTA })).toMatchObject({ state: "QUOTA" });
    expect(await bucket.admit({ now: T0, ids, mode: "fit", quota: QUOTA })).toMatchObject({ state: "ADDED", count: 2 });
    expect(await bucket.waiting()).toEqual(["a", "b"]);
    expect(await bucket.admit({ now: T0, ids: ["d"], mode: "fit", quota: QUOTA })).toMatchObject({ state: "QUOTA" });
  });

  test("cost, refused calls and the strict token bucket count where asked", async () => {
    const bucket = await bucketOf({ rate: "1/s" });
    const bring = async (now: number, id: string, quota: string, cost = 1) =>
      bucket.admit({ now, ids: [id], quota, terms: of("a", cost) });
    expect(await bring(T0, "a", "$fixed-window:10:60000000", 8)).toMatchObject({ state: "ADDED" });
    expect(await bring(T0, "b", "$fixed-window:10:60000000", 3)).toMatchObject({ state: "QUOTA" });
    expect(await bring(T0, "b", "$fixed-window:10:60000000", 20)).toEqual({
      state: "QUOTA",
      at: undefined,
      producer: "a",
    });
    const strict = "!token-bucket:1:10000000:1";
    expect(await bring(T0, "c", strict)).toMatchObject({ state: "ADDED" });
    expect(await bring(T0 + 9 * S, "d", strict)).toMatchObject({ state: "QUOTA" });
    expect(await bring(T0 + 18 * S, "d", strict)).toMatchObject({ state: "QUOTA" });
    expect(await bring(T0 + 28 * S, "d", strict)).toMatchObject({ state: "ADDED" });
    const counted = "+sliding-log:1:10000000";
    expect(await bring(T0, "e", counted)).toMatchObject({ state: "ADDED" });
    expect(await bring(T0 + 9 * S, "f", counted)).toMatchObject({ state: "QUOTA" });
    expect(await bring(T0 + 12 * S, "f", counted)).toMatchObject({ state: "QUOTA" });
  });

  test("the clock of the server is set back: the producer is not locked out", async () => {
    const bucket = await bucketOf({ rate: "1/s" });
    const quota = "leaky-bucket:1:1000000:1";
    expect(await bucket.admit({ now: T0, ids: ["a"], quota })).toMatchObject({ state: "ADDED" });
    const before = T0 - HOUR;
    expect(await bucket.admit({ now: before, ids: ["b"], quota })).toMatchObject({ state: "QUOTA" });
    expect(await bucket.admit({ now: before + 2 * S, ids: ["b"], quota })).toMatchObject({ state: "ADDED" });
  });
});

test("each door asks for the quota of its producer", async () => {
  const limits = defineLimits({
    "127.0.0.1": {
      rate: "1000/s",
      admit: {
        algorithm: "fixed-window",
        limit: 1,
        per: "365d",
        key: ({ headers }) => headers.get("x-tenant") ?? "none",
      },
    },
  });
  await using client = createClient({ redis: redisUrl(), prefix: uniquePrefix(), limits });
  const call = async (tenant: string) => client.enqueue("http://127.0.0.1:9/", { headers: { "x-tenant": tenant } });
  await call("a");
  await call("b");
  const refused = await call("a").catch((error: unknown) => error);
  expect(refused).toBeInstanceOf(QuotaExceededError);
  expect(refused).toMatchObject({ code: "ERR_QUOTA_EXCEEDED", limit: "127.0.0.1", key: "a" });
  const { retryAfter } = refused as QuotaExceededError;
  expect(retryAfter).toBeGreaterThan(0);
  expect(retryAfter).toSatisfy(Number.isInteger);
  await expect(client.fetch("http://127.0.0.1:9/", { headers: { "x-tenant": "b" } })).rejects.toMatchObject({
    code: "ERR_QUOTA_EXCEEDED",
  });
  await expect(client.run("127.0.0.1", () => 1)).rejects.toMatchObject({
    code: "ERR_INVALID_CALL",
    message: expect.stringContaining("`producer`"),
  });
  await expect(client.run("127.0.0.1", () => 1, { producer: "a" })).rejects.toMatchObject({
    code: "ERR_QUOTA_EXCEEDED",
  });
  const { tickets, refused: tooMany } = await client.enqueueMany(
    ["c", "c", "d"].map((tenant) => ({ url: "http://127.0.0.1:9/", headers: { "x-tenant": tenant } })),
    { mode: "fit" },
  );
  expect([tickets.length, tooMany.length]).toEqual([1, 2]);
});
