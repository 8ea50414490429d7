/** What clients and workers tell about themselves. */
import { type EventEmitter, once } from "node:events";
import { createServer } from "node:net";
import { Redis } from "ioredis";
import { expect, expectTypeOf, test } from "vitest";
import { createClient, createWorker, defineLimits, type SpillwayEvents } from "spillway";
import { hasNativeRedis, nativeRedis, redisUrl, uniquePrefix } from "../helpers/redis.js";
import { startUpstream } from "../helpers/upstream.js";
import { Reporter } from "../../dist/observe/events.js";
import { answered } from "../../dist/redis/answer.js";
import { bounded, until } from "../helpers/wait.js";
import { openDesk } from "../intake/desk.js";

/** What is told of one event, from now on. */
function listen<K extends keyof SpillwayEvents>(
  events: EventEmitter<SpillwayEvents>,
  event: K,
): SpillwayEvents[K][0][] {
  const told: SpillwayEvents[K][0][] = [];
  // Typed by hand: the parameters that EventEmitter deduces for a generic event are those of all events.
  (events as EventEmitter).on(event, (details: SpillwayEvents[K][0]) => told.push(details));
  return told;
}

test.skipIf(!hasNativeRedis)("a Redis that may evict calls is warned of, once per connection", async () => {
  await using redis = await nativeRedis(["--maxmemory-policy", "allkeys-lru", "--maxmemory", "100mb"]);
  const limits = defineLimits({ a: { rate: "1000/s" } });
  await using client = createClient({ redis: redis.url, limits });
  await using worker = createWorker({ redis: redis.url, limits });
  const warnings = [listen(client.events, "warning"), listen(worker.events, "warning")];
  await client.run("a", () => {});
  for (const told of warnings) {
    await until(() => told.length === 1, { what: "the warning" });
    expect(told[0]?.message).toMatch(/maxmemory-policy allkeys-lru.*noeviction/);
  }
  await client.run("a", () => {});
  expect(warnings.map((told) => told.length)).toEqual([1, 1]);
});

test("a server that keeps what it is given is not warned of, nor is closing", async () => {
  await using upstream = await startUpstream({ handler: (_request, response) => void response.write("begin") });
  await using desk = openDesk({ [upstream.host]: { rate: "1000/s", concurrency: 2 } });
  const warnings = listen(desk.client.events, "warning");
  const controller = new AbortController();
  const { signal } = controller;
  const response = await desk.client.fetch(upstream.url, { signal });
  const ending = response.text().catch(() => {});
  let begun = false;
  const running = desk.client.run(upstream.host, () => {
    begun = true;
    return until(() => signal.aborted);
  });
  // The place is taken before the function runs.
  await until(async () => begun && (await desk.client.limit(upstream.host).stats()).inFlight === 2);
  await desk.client.close();
  // Both flights end after the client has closed.
  controller.abort();
  await Promise.all([ending, running]);
  await new Promise((resolve) => setTimeout(resolve, 20));
  expect(warnings).toEqual([]);
});

test("an unreachable Redis is told once, and not for every attempt to connect", async () => {
  const limits = defineLimits({ a: { rate: "1/s" } });
  await using client = createClient({ redis: { host: "127.0.0.1", port: 1 }, prefix: uniquePrefix(), limits });
  const warnings = listen(client.events, "warning");
  await expect(client.run("a", () => {})).rejects.toMatchObject({ code: "ERR_REDIS_UNAVAILABLE" });
  await expect(client.enqueue("http://a/")).rejects.toMatchObject({
    code: "ERR_REDIS_UNAVAILABLE",
    cause: { code: "ECONNREFUSED" },
  });
  expect(warnings.filter(({ message }) => message.includes("ECONNREFUSED"))).toHaveLength(1);
});

test("drops, pauses, retries and ends are told by who saw them", async () => {
  let calls = 0;
  await using upstream = await startUpstream({
    handler: (request, response) => {
      if (request.url === "/busy" && calls++ === 0) response.writeHead(503, { "retry-after": "1" }).end();
      else response.writeHead(request.url === "/bad" ? 500 : 200).end();
    },
  });
  const limit = upstream.host;
  const bucket = limit.replace(":", "%3A");
  const limits = defineLimits({
    [limit]: { rate: "1000/s", retry: { attempts: 2, minBackoff: "1ms", maxBackoff: "2ms" } },
  });
  const prefix = uniquePrefix();
  await using worker = createWorker({ redis: redisUrl(), prefix, limits });
  await using client = createClient({ redis: redisUrl(), prefix, limits });
  const [pauses, retries, finishes] = [
    listen(worker.events, "pause"),
    listen(worker.events, "retry"),
    listen(worker.events, "finish"),
  ];
  const drops = listen(client.events, "drop");
  expectTypeOf(drops).toEqualTypeOf<{ limit: string; bucket: string; id: string; why: string }[]>();

  const good = await client.enqueue(`${upstream.url}/good`);
  await bounded(good.result(), 3000, "the first result");
  await until(() => finishes.length === 1);
  expect(finishes[0]).toEqual({ limit, bucket, id: good.id, ok: true, status: 200, attempts: 1 });
  expect([pauses, retries, drops]).toEqual([[], [], []]);

  const bad = await client.enqueue(`${upstream.url}/bad`);
  await expect(bounded(bad.result(), 3000, "the failure")).rejects.toMatchObject({ code: "ERR_UPSTREAM", attempts: 2 });
  await until(() => finishes.length === 2);
  expect(finishes[1]).toMatchObject({ id: bad.id, ok: false, status: 500, attempts: 2 });
  const cause = "The server answered with status 500";
  const { id } = bad;
  expect(retries).toEqual([
    { limit, bucket, id, attempt: 1, cause, willRetry: true },
    { limit, bucket, id, attempt: 2, cause, willRetry: false },
  ]);

  const from = Date.now();
  const busy = await client.enqueue(`${upstream.url}/busy`);
  await until(() => pauses.length === 1);
  expect(pauses[0]).toEqual({
    limit,
    bucket,
    until: expect.any(Date),
    reason: expect.stringContaining("503"),
  });
  expect(Math.abs((pauses[0]?.until.getTime() ?? 0) - from - 1000)).toBeLessThan(300);
  expect((await client.limit(limit).stats()).paused?.reason).toContain("503");
  const late = await client.enqueue(upstream.url);
  expect(await late.cancel()).toBe(true);
  expect(drops).toEqual([{ limit, bucket, id: late.id, why: "cancelled" }]);
  expect(await bounded(busy.result(), 5000, "the result after the pause")).toMatchObject({ status: 200, attempts: 2 });
});

test("a connection that breaks under a command is told as that, and not by an option of ioredis", async () => {
  const server = createServer((socket) => socket.once("data", () => socket.destroy())).listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  const port = typeof address === "object" ? address?.port : undefined;
  const redis = new Redis({
    port: port ?? 0,
    maxRetriesPerRequest: 0,
    enableReadyCheck: false,
    retryStrategy: () => 5,
  });
  redis.on("error", () => {});
  try {
    const error: unknown = await bounded(answered(redis.ping(), 5000), 5000, "the reply").catch((thrown) => thrown);
    expect(error).toMatchObject({ code: "ERR_REDIS_UNAVAILABLE", message: "The connection to Redis was lost" });
    expect(error).toMatchObject({ name: "RedisUnavailableError" });
    const report = new Reporter();
    const told = listen(report.events, "warning");
    report.connection(error instanceof Error ? error.cause : error);
    expect(told).toMatchObject([{ message: "The connection to Redis was lost" }]);
  } finally {
    redis.disconnect();
    server.close();
  }
});

test("what is told once a minute for each bucket is not remembered for more and more of them", () => {
  const report = new Reporter();
  const told = listen(report.events, "unattended");
  report.unattended("a", "first");
  report.unattended("a", "first");
  expect(told).toHaveLength(1);
  for (let i = 0; i < 10_000; i++) report.unattended("a", `bucket ${i}`);
  report.unattended("a", "first");
  expect(told).toHaveLength(10_002);
});
