import { copyFileSync, mkdirSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { Queue } from "bullmq";
import { Redis } from "ioredis";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { runScript, runScriptBuffer } from "../../dist/redis/scripts.js";
import { temporaryFolder } from "../helpers/processes.js";
import { hasNativeRedis, type NativeRedis, nativeRedis, redisUrl } from "../helpers/redis.js";
import { Bucket, bucketOf, listen, MS, S, T0 } from "../helpers/scripts.js";

const require = createRequire(import.meta.url);
const bullmq = require("bullmq/dist/cjs/scripts/index.js") as Record<string, unknown>;

/** The module that composes scripts, beside a bullmq that ships what is given. */
function installation(ships: (scripts: Record<string, unknown>) => object): { path: string } & Disposable {
  const folder = temporaryFolder();
  const dist = join(import.meta.dirname, "../../dist/redis");
  for (const file of ["scripts.js", "lua.generated.js"]) copyFileSync(join(dist, file), join(folder.path, file));
  writeFileSync(join(folder.path, "package.json"), '{"type":"module"}');
  const scripts = join(folder.path, "node_modules/bullmq/dist/cjs/scripts");
  mkdirSync(scripts, { recursive: true });
  writeFileSync(join(folder.path, "node_modules/bullmq/package.json"), "{}");
  writeFileSync(join(scripts, "index.js"), `module.exports = ${JSON.stringify(ships({ ...bullmq }))}`);
  return { path: folder.path, [Symbol.dispose]: () => folder.remove() };
}

describe("BullMQ", () => {
  test("a version that lacks a script is named, with what is needed", async () => {
    using folder = installation(({ moveToActive: _lacks, ...shipped }) => shipped);
    await expect(import(join(folder.path, "scripts.js"))).rejects.toThrow(
      'bullmq ships no script "moveToActive": spillway needs bullmq 6.7.0, exactly as its package.json says',
    );
  });

  test("a version that has them all will do", async () => {
    using folder = installation((shipped) => shipped);
    await expect(import(join(folder.path, "scripts.js"))).resolves.toHaveProperty("runScript");
  });

  let bucket: Bucket;
  let queue: Queue;
  beforeEach(async () => {
    bucket = await bucketOf({ rate: "1000/s", lateness: 0 });
    queue = new Queue(`{${bucket.name}}`, { prefix: bucket.prefix, connection: { url: redisUrl() } });
  });
  afterEach(async () => {
    await queue.close();
  });

  test("its own Queue, and so every dashboard, sees waiting, active and failed calls", async () => {
    await using _listener = await listen("caller");
    await bucket.admit({ now: T0, ids: ["a", "b", "c", "d"] });
    await bucket.admit({ now: T0, ids: ["p"], kind: "permit", client: "caller" });
    await bucket.take({ now: T0, most: 2 });
    await bucket.finish(T0 + S, "a", { end: "failed" });
    expect(await queue.getJobCounts("waiting", "active", "failed", "completed", "delayed")).toEqual({
      waiting: 3,
      active: 1,
      failed: 1,
      completed: 0,
      delayed: 0,
    });
    const [failed] = await queue.getJobs("failed");
    expect(failed).toMatchObject({ id: "a", name: "request", data: { of: "a" }, failedReason: "why" });
    expect(failed?.timestamp).toBe(T0 / 1000);
    expect(failed?.finishedOn).toBe((T0 + S) / 1000);
    const waiting = await queue.getJobs("waiting", 0, -1, true);
    expect(waiting.map(({ id, name }) => `${name} ${id}`)).toEqual(["request c", "request d", "permit p"]);
    expect((await queue.getJobs("active")).map(({ id }) => id)).toEqual(["b"]);
  });

  test("a call that is removed there is gone, and its place is free", async () => {
    await bucket.admit({ now: T0, ids: ["a", "b"] });
    await (await queue.getJob("a"))?.remove();
    expect(await bucket.depth(T0)).toBe(1);
    expect((await bucket.take({ now: T0 })).calls.map(({ id }) => id)).toEqual(["b"]);
  });

  test("a queue that is paused there hands out nothing and loses nothing", async () => {
    await bucket.admit({ now: T0, ids: ["a", "b"] });
    await queue.pause();
    expect(await bucket.take({ now: T0 })).toMatchObject({ state: "full", calls: [] });
    expect(await bucket.stats(T0)).toMatchObject({ depth: 2, nextSlot: T0 });
    await queue.resume();
    expect((await bucket.take({ now: T0 })).calls.map(({ id, slot }) => [id, slot])).toEqual([
      ["a", T0],
      ["b", T0 + MS],
    ]);
  });

  test("a call that waits again keeps its mark while the queue is paused there", async () => {
    await bucket.admit({ now: T0, ids: ["a"] });
    await bucket.take({ now: T0 });
    await bucket.requeue(T0 + S, "a");
    await queue.pause();
    await bucket.take({ now: T0 + S });
    expect(await bucket.depth(T0 + S)).toBe(0);
    expect(await bucket.again()).toBe(1);
  });
});

test("a script that the server does not know yet is sent, and bytes come back as they are", async () => {
  const bucket = await bucketOf({ rate: "1000/s" });
  const body = Buffer.from([0, 255, 10, 13, 128]);
  await bucket.admit({ now: T0, ids: ["a"] });
  await bucket.take({ now: T0 });
  const outcome = ["a", "worker", "completed", "", 10, 60_000, "{}", body] as const;
  await runScript(bucket.redis, "finish", bucket.key("gate"), [T0 + S, ...outcome]);
  const reply = await runScriptBuffer(bucket.redis, "await", bucket.key("gate"), ["a", "", 0]);
  expect(reply).toEqual([Buffer.from("DONE"), Buffer.from("{}"), body]);
});

describe.skipIf(!hasNativeRedis)("on a server of its own", () => {
  let server: NativeRedis;
  let redis: Redis;
  beforeEach(async () => {
    server = await nativeRedis();
    redis = new Redis(server.url);
  });
  afterEach(async () => {
    redis.disconnect();
    await server.stop();
  });

  test("scripts survive SCRIPT FLUSH", async () => {
    const bucket = new Bucket(redis, "test", "b");
    await bucket.declare({ rate: "10/s" });
    expect(await bucket.admit({ now: T0, ids: ["a"] })).toMatchObject({ state: "ADDED" });
    await redis.script("FLUSH");
    expect(await bucket.admit({ now: T0, ids: ["b"] })).toMatchObject({ state: "ADDED" });
  });

  /** Commands that one script has run, itself not counted. */
  async function cost(run: () => Promise<unknown>): Promise<number> {
    await redis.config("RESETSTAT");
    await run();
    const stats = await redis.info("commandstats");
    const calls = [...stats.matchAll(/^cmdstat_(\S+?):calls=(\d+)/gm)];
    const own = /^(evalsha|eval|info|config\|resetstat|config)$/;
    return calls.reduce((sum, [, name, count]) => (own.test(name ?? "") ? sum : sum + Number(count)), 0);
  }

  test("a call costs a bounded number of commands, whatever waits", async () => {
    const bucket = new Bucket(redis, "test", "b");
    await bucket.declare({ rate: "1000/s", lateness: 0 });
    const warm = async (now: number): Promise<void> => {
      await bucket.admit({ now, ids: [`warm${now}`] });
      await bucket.take({ now });
      await bucket.finish(now, `warm${now}`);
      await bucket.admit({ now, ids: [`grant${now}`], kind: "permit", client: "x" });
    };
    await warm(T0);
    const many = Array.from({ length: 500 }, (_, i) => `c${1000 + i}`);
    const grant = await cost(() => bucket.admit({ now: T0 + S, ids: ["p"], kind: "permit" }));
    const admitFirst = await cost(() => bucket.admit({ now: T0 + 2 * S, ids: ["a"] }));
    await bucket.admit({ now: T0 + 2 * S, ids: many });
    const admitMore = await cost(() => bucket.admit({ now: T0 + 2 * S, ids: ["z"] }));
    const takeOne = await cost(() => bucket.take({ now: T0 + 3 * S, most: 1 }));
    const takeTen = await cost(() => bucket.take({ now: T0 + 4 * S, most: 10 }));
    const finish = await cost(() => bucket.finish(T0 + 4 * S, "a"));
    const retry = await cost(() => bucket.reserve(T0 + 4 * S, "c1000"));
    const costs = { grant, admitFirst, admitMore, takeOne, takeTen, finish, retry };
    if (process.env["SHOW_COSTS"] !== undefined) process.stdout.write(`${JSON.stringify(costs)}\n`);
    expect(grant).toBeLessThanOrEqual(24);
    expect(admitFirst).toBeLessThanOrEqual(40);
    expect(admitMore).toBeLessThanOrEqual(26);
    expect(takeOne).toBeLessThanOrEqual(28);
    expect((takeTen - takeOne) / 9).toBeLessThanOrEqual(16);
    expect(finish).toBeLessThanOrEqual(26);
    expect(retry).toBeLessThanOrEqual(6);
  });
});
