import { createClient, defineLimits } from "spillway";
import { expect, test } from "vitest";
import { list, number } from "../../dist/redis/reply.js";
import { redisUrl, uniquePrefix } from "../helpers/redis.js";
import { type Bucket, bucketOf, MS, S, T0 } from "../helpers/scripts.js";
import { startUpstream } from "../helpers/upstream.js";
import { until } from "../helpers/wait.js";

/** Starts, refused by us, refused by the server, failed: of each second from T0. */
async function usage(bucket: Bucket, now: number, seconds: number): Promise<number[][]> {
  const reply = await bucket.run("usage", [now, seconds]);
  return list(reply[2]).map((entry) => {
    const [second = 0, ...counts] = list(entry).map(number);
    return [second - T0 / S].concat(counts);
  });
}

test("starts are counted in the second of their slot; those given back are not", async () => {
  const bucket = await bucketOf({ rate: "10/s", lateness: 0 });
  for (let i = 0; i < 15; i++) await bucket.reserve(T0, `c${i}`);
  await bucket.giveBack(T0, "c14", T0 + 1400 * MS);
  expect(await usage(bucket, T0 + 1500 * MS, 2)).toEqual([
    [0, 10, 0, 0, 0],
    [1, 4, 0, 0, 0],
  ]);
  expect(await usage(bucket, T0 + 1500 * MS, 1)).toEqual([[1, 4, 0, 0, 0]]);
  expect(await usage(bucket, T0 + 3 * S, 2)).toEqual([]);
});

test("what was refused, by whom, and what failed", async () => {
  const bucket = await bucketOf({ rate: "1/s", capacity: 2 });
  await bucket.admit({ now: T0, ids: ["a", "b", "c"], mode: "fit" });
  await bucket.admit({ now: T0 + MS, ids: ["d", "e"] });
  await bucket.run("feedback", [T0 + S, "", "status 429", "", "", "", "1"]);
  await bucket.take({ now: T0 + S });
  await bucket.finish(T0 + S, "a", { end: "failed" });
  await bucket.control(T0 + 2 * S, "block", 60 * S, "closed");
  await bucket.admit({ now: T0 + 2 * S, ids: ["f"] });
  expect(await usage(bucket, T0 + 2 * S, 10)).toEqual([
    [0, 0, 3, 0, 0],
    [1, 1, 0, 1, 1],
    [2, 0, 1, 0, 0],
  ]);
});

test("the oldest that was dropped was refused", async () => {
  const bucket = await bucketOf({ rate: "1/s", capacity: 1, overflow: "drop-oldest" });
  await bucket.admit({ now: T0, ids: ["a"] });
  await bucket.admit({ now: T0, ids: ["b"] });
  expect(await usage(bucket, T0, 1)).toEqual([[0, 0, 1, 0, 0]]);
});

test("an hour later nothing of it comes back", async () => {
  const bucket = await bucketOf({ rate: "1/s" });
  await bucket.reserve(T0, "a");
  await bucket.reserve(T0 + 5 * S, "b");
  expect(await usage(bucket, T0 + 3600 * S, 3600)).toEqual([[5, 1, 0, 0, 0]]);
  expect(await usage(bucket, T0 + 7200 * S, 3600)).toEqual([]);
});

test("limit().usage() sums it up, and lists the seconds", async () => {
  await using upstream = await startUpstream({
    handler: (request, response) => void response.writeHead(request.url === "/429" ? 429 : 200).end(),
  });
  const limits = defineLimits({ [upstream.host]: { rate: "100/s", capacity: 1, retry: false } });
  await using client = createClient({ redis: redisUrl(), prefix: uniquePrefix(), limits, worker: true });
  const bucket = client.limit(upstream.host);
  await (await client.fetch(upstream.url)).text();
  await expect((await client.enqueue(`${upstream.url}/429`)).result()).rejects.toMatchObject({ code: "ERR_UPSTREAM" });
  const calls = [1, 2].map(() => ({ url: upstream.url }));
  await expect(client.enqueueMany(calls)).rejects.toMatchObject({ code: "ERR_QUEUE_FULL" });
  await until(async () => (await bucket.usage(3600)).throttled === 1);
  const { seconds, ...sums } = await bucket.usage(3600);
  expect(sums).toEqual({ sent: 2, refused: 2, throttled: 1, failed: 1 });
  expect(seconds.reduce((sum, { sent }) => sum + sent, 0)).toBe(2);
  expect(seconds[0]?.at).toBeInstanceOf(Date);
});
