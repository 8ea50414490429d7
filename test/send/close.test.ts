import { setTimeout as sleep } from "node:timers/promises";
import { type CallInput, createClient, createWorker, defineLimits, RedisUnavailableError } from "spillway";
import { expect, test, vi } from "vitest";
import type { Context } from "../../dist/redis/context.js";
import { redisUrl, uniquePrefix } from "../helpers/redis.js";
import { startUpstream, startUpstreamThread } from "../helpers/upstream.js";
import { until } from "../helpers/wait.js";
import { ENDED_MS, arrived, type Ends, look, numbers, startNode } from "./nodes.js";

// Generous: only a hang should end a test on a busy machine.
vi.setConfig({ testTimeout: 90_000 });

const redis = redisUrl();

test("a worker that closes lets calls in flight end, and sends none of them again", async () => {
  await using upstream = await startUpstreamThread({ latencyMs: 600 });
  const prefix = uniquePrefix();
  const limits = defineLimits({ [upstream.host]: { rate: "100/s" } });
  await using client = createClient({ redis, prefix, limits });
  const worker = createWorker({ redis, prefix, limits });
  const results = [];
  for (const method of ["GET", "POST", "PUT"]) {
    results.push((await client.enqueue(`${upstream.url}/?n=${method}`, { method })).result());
  }
  await arrived(upstream, 3);
  await worker.close();
  await using _other = createWorker({ redis, prefix, limits });
  expect((await Promise.all(results)).map(({ status, attempts }) => [status, attempts])).toEqual([
    [200, 1],
    [200, 1],
    [200, 1],
  ]);
  await sleep(100);
  expect((await upstream.read()).arrivals.length).toBe(3);
});

test("a call that waits for its next attempt goes back to the head, and its attempts count on", async () => {
  await using upstream = await startUpstream({
    handler(request, response) {
      const failing = request.url === "/?n=failing" && numbers(upstream).filter((n) => n === "failing").length < 3;
      response.writeHead(failing ? 503 : 200).end();
    },
  });
  const prefix = uniquePrefix();
  const limits = defineLimits({ [upstream.host]: { rate: "10/s", retry: { attempts: 4, minBackoff: "10s" } } });
  await using client = createClient({ redis, prefix, limits });
  const worker = createWorker({ redis, prefix, limits });
  const failed = new Promise((resolve) => worker.events.once("retry", resolve));
  const failing = await client.enqueue(`${upstream.url}/?n=failing`);
  await failed;
  await client.limit(upstream.host).pause("1h");
  await client.enqueueMany([0, 1, 2].map((i) => ({ url: `${upstream.url}/?n=${i}` })));
  await worker.close();
  await using plain = look();
  const head = await plain.lindex(`${prefix}:{${encodeURIComponent(upstream.host)}}:wait`, -1);
  expect(failing.id.endsWith(`~${head}`)).toBe(true);

  const second = createWorker({ redis, prefix, limits });
  const failedAgain = new Promise<{ attempt: number }>((resolve) => second.events.once("retry", resolve));
  await client.limit(upstream.host).resume();
  expect((await failedAgain).attempt).toBe(2);
  await second.close();
  await using _third = createWorker({ redis, prefix, limits });
  expect(await failing.result()).toMatchObject({ status: 200, attempts: 3 });
  await until(() => upstream.arrivals.length === 6, { what: "6 arrivals" });
  expect(numbers(upstream).toSorted()).toEqual(["0", "1", "2", "failing", "failing", "failing"]);
});

test("calls that were taken but not sent yet go back in their order, and others can join them", async () => {
  await using upstream = await startUpstreamThread();
  await using plain = look();
  const prefix = uniquePrefix();
  const limits = defineLimits({ [upstream.host]: { rate: "500/s", lateness: "300ms" } });
  await using client = createClient({ redis, prefix, limits });
  const count = 400;
  const call = (n: number): CallInput => ({ url: `${upstream.url}/?n=${n}`, dedupe: `${n}` });
  const { tickets } = await client.enqueueMany(Array.from({ length: count }, (_, n) => call(n)));
  const key = `${prefix}:{${encodeURIComponent(upstream.host)}}:`;
  // Each is closed in the middle of its work, while it holds about ten calls.
  for (const half of [60, 120, 180, 240]) {
    const worker = createWorker({ redis, prefix, limits });
    await until(async () => (await upstream.read()).arrivals.length >= half, { what: `${half} arrivals`, interval: 3 });
    await worker.close();
    const ids = (await plain.lrange(`${key}wait`, 0, -1)).toReversed();
    const waiting = await Promise.all(
      ids.map(async (id) => Number(/n=(\d+)/.exec((await plain.hget(key + id, "data")) ?? "")?.[1])),
    );
    expect(waiting).toEqual(waiting.toSorted((a, b) => a - b));
    expect(waiting.at(-1)).toBe(count - 1);
    const joined = await client.enqueueMany(waiting.map(call));
    expect(joined.tickets.map(({ id }) => id)).toEqual(waiting.map((n) => tickets[n]?.id));
  }
  await using _last = createWorker({ redis, prefix, limits });
  await arrived(upstream, count);
  expect(new Set(numbers(await upstream.read())).size).toBe(count);
});

test("closeTimeout ends an attempt that hangs", async () => {
  let hang = true;
  await using upstream = await startUpstream({
    handler(_request, response) {
      if (!hang) response.end("ok");
    },
  });
  const prefix = uniquePrefix();
  const limits = defineLimits({ [upstream.host]: { rate: "100/s" } });
  await using client = createClient({ redis, prefix, limits });
  const worker = createWorker({ redis, prefix, limits, closeTimeout: "300ms" });
  const get = await client.enqueue(`${upstream.url}/?n=get`);
  const post = await client.enqueue(`${upstream.url}/?n=post`, { method: "POST" });
  await until(() => upstream.arrivals.length === 2, { what: "2 arrivals" });
  const began = performance.now();
  await worker.close();
  expect(performance.now() - began).toBeGreaterThan(250);
  expect(performance.now() - began).toBeLessThan(3_000);
  hang = false;
  await using _other = createWorker({ redis, prefix, limits });
  expect((await get.result()).status).toBe(200);
  await expect(post.result()).rejects.toMatchObject({ code: "ERR_MAYBE_SENT" });
  expect(numbers(upstream).sort()).toEqual(["get", "get", "post"]);
});

test.each(["client", "worker", "both"] as const)(
  "a %s that was busy leaves nothing behind when it closes",
  async (role) => {
    await using upstream = await startUpstreamThread();
    const setup = {
      prefix: uniquePrefix(),
      limits: { [upstream.host]: { rate: "2/s" }, slow: { rate: "1/h" } },
    } as const;
    const node = await startNode(role, setup);
    const client = role === "both" ? node : await startNode("client", setup);
    const helper = role === "client" ? await startNode("worker", setup) : node;
    // One in each is sent; the others of the slow one would wait for hours.
    expect((await client.ask<Ends>("run", { limit: "slow", count: 1 })).ends).toEqual({ ok: 1 });
    expect((await client.ask<Ends>("fetch", { url: upstream.url, count: 2 })).ends).toEqual({ ok: 2 });
    expect((await client.ask<Ends>("deliver", { url: upstream.url, count: 1 })).ends).toEqual({ ok: 1 });
    const waiting = client.ask<Ends>("run", { limit: "slow", count: 3 });
    const stats = { limit: "slow", method: "stats" };
    await until(async () => (await client.ask<{ value: { waiting: number } }>("limit", stats)).value.waiting === 3, {
      what: "3 waiting",
    });
    if (role === "worker") {
      expect((await node.end()).exitMs).toBeLessThan(ENDED_MS);
      await client.end();
      return;
    }
    expect((await client.end()).exitMs).toBeLessThan(ENDED_MS);
    expect((await waiting).ends).toEqual({ ERR_CLOSED: 3 });
    if (helper !== client) await helper.end();
  },
);

test("an answer that a closing worker could not store is not stored as a failure", async () => {
  await using upstream = await startUpstream();
  const prefix = uniquePrefix();
  const limits = defineLimits({ [upstream.host]: { rate: "100/s" } });
  await using client = createClient({ redis, prefix, limits });
  const worker = createWorker({ redis, prefix, limits, lockDuration: "1s", closeTimeout: "10ms" });
  const { session } = (worker as unknown as { context: Context }).context;
  const run = session.run.bind(session);
  let closed: Promise<void> | undefined;
  // Redis goes away when the answer is there, the worker closes, and has given up when Redis is back.
  session.run = async (...given) => {
    if (given[1] !== "finish" || closed !== undefined) return run(...given);
    closed = worker.close();
    await sleep(200);
    throw new RedisUnavailableError("gone for a moment");
  };
  const ticket = await client.enqueue(upstream.url);
  await until(() => closed !== undefined);
  await closed;
  await using _other = createWorker({ redis, prefix, limits, lockDuration: "1s" });
  expect(await ticket.result()).toMatchObject({ status: 200 });
  expect(upstream.arrivals).toHaveLength(2);
});
