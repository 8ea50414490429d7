import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import type { ServerResponse } from "node:http";
import { brotliCompressSync, deflateRawSync, deflateSync, gzipSync } from "node:zlib";
import {
  type Client,
  createClient,
  createWorker,
  defineLimits,
  type LimitHandle,
  type LimitOptions,
  type Limits,
  QueueFullError,
  type Ticket,
} from "spillway";
import { expect, test, vi } from "vitest";
import { redisUrl, uniquePrefix } from "../helpers/redis.js";
import { startUpstream, type Upstream } from "../helpers/upstream.js";
import { bounded, until } from "../helpers/wait.js";
import { endAll, type Ends, look, startNodes } from "./nodes.js";

// Generous: only a hang should end a test on a busy machine.
vi.setConfig({ testTimeout: 90_000 });

type Step = (response: ServerResponse) => unknown;
const answer =
  (status: number, headers = {}): Step =>
  (response) =>
    response.writeHead(status, headers).end(`status ${status}`);
const answerWith =
  (headers: Record<string, string>, body: Buffer): Step =>
  (response) =>
    response.writeHead(200, { ...headers, "content-length": body.byteLength }).end(body);
const reset: Step = (response) => response.destroy();
const hang: Step = () => {};

interface Here extends AsyncDisposable {
  readonly upstream: Upstream;
  readonly client: Client;
  readonly prefix: string;
}

/** A server that takes one step for each request, the last one for all further ones; and a client that also sends. */
async function setUp(steps: Step[], options: Partial<LimitOptions> = {}): Promise<Here> {
  let taken = 0;
  const upstream = await startUpstream({
    handler: (_request, response) => steps[Math.min(taken++, steps.length - 1)]?.(response),
  });
  const prefix = uniquePrefix();
  const limits: Limits = defineLimits({
    [upstream.host]: { rate: "100/s", retry: { minBackoff: "10ms" }, ...options },
  });
  const client = createClient({ redis: redisUrl(), prefix, limits, worker: true });
  const end = async () => {
    await client.close();
    await upstream.close();
  };
  return { upstream, client, prefix, [Symbol.asyncDispose]: end };
}

test("a network error and a 503 are tried again, and the attempts are counted", async () => {
  await using here = await setUp([reset, answer(503), answer(200)]);
  const { client, upstream } = here;
  const retries: { attempt: number; willRetry: boolean }[] = [];
  client.events.on("retry", ({ attempt, willRetry }) => retries.push({ attempt, willRetry }));
  const result = await (await client.enqueue(upstream.url)).result();
  expect(result).toMatchObject({ status: 200, attempts: 3 });
  expect(result.text()).toBe("status 200");
  expect(upstream.arrivals.length).toBe(3);
  expect(retries).toEqual([
    { attempt: 1, willRetry: true },
    { attempt: 2, willRetry: true },
  ]);
});

test("when all attempts fail, the error tells the last status, and the call can be retried by hand", async () => {
  await using here = await setUp([answer(503), answer(500), answer(502), answer(200)]);
  const { client, upstream } = here;
  const ticket = await client.enqueue(`${upstream.url}/x`, { method: "PUT", body: "b" });
  await expect(ticket.result()).rejects.toMatchObject({ code: "ERR_UPSTREAM", status: 502, attempts: 3 });
  const bucket = client.limit(upstream.host);
  expect(await bucket.failed()).toMatchObject([{ id: ticket.id, url: `${upstream.url}/x`, method: "PUT" }]);
  expect(await bucket.retryFailed()).toBe(1);
  expect(await ticket.result()).toMatchObject({ status: 200, attempts: 1 });
  expect(await bucket.failed()).toEqual([]);
  expect(upstream.arrivals.length).toBe(4);
});

test("a call that is retried by hand begins anew, however old it is", async () => {
  const steps = [answer(500), answer(429), answer(503)];
  await using here = await setUp(steps, { retry: { attempts: 1 }, redeliver: { attempts: 1, maxAge: "2d" } });
  const { client, upstream, prefix } = here;
  const bucket = client.limit(upstream.host);
  await bucket.pause("1h");
  const ticket = await client.enqueue(upstream.url, { method: "POST" });
  await using redis = look();
  const [key = "", id = ""] = ticket.id.split("~");
  await redis.hset(`${prefix}:{${key}}:${id}`, "timestamp", Date.now() - 3 * 86_400_000);
  await bucket.resume();
  // Too old to come back by itself.
  await expect(ticket.result()).rejects.toMatchObject({ code: "ERR_UPSTREAM", attempts: 1 });
  const comesBack = once(client.events, "redeliver");
  expect(await bucket.retryFailed()).toBe(1);
  // The refusal was none of its attempts, and the failure behind it not its end.
  expect(await bounded(comesBack, 20_000, "a redelivery")).toMatchObject([{ cause: expect.stringContaining("503") }]);
});

test("a POST is tried again only with an idempotency key", async () => {
  await using here = await setUp([answer(503), answer(503), answer(200)]);
  const { client, upstream } = here;
  const plain = await client.enqueue(upstream.url, { method: "POST", body: "x" });
  await expect(plain.result()).rejects.toMatchObject({ code: "ERR_UPSTREAM", status: 503, attempts: 1 });
  const headers = { "Idempotency-Key": "1" };
  const keyed = await client.enqueue(upstream.url, { method: "POST", body: "x", headers });
  expect(await keyed.result()).toMatchObject({ status: 200, attempts: 2 });
});

test("after a pause the refused calls go first, in their order", async () => {
  // Whatever comes before the first refusal is answered.
  let answered = Infinity;
  let refusals = 0;
  const steps = [
    async (response: ServerResponse): Promise<void> => {
      const refused = answered === Infinity;
      if (refused) refusals++;
      await sleep(200);
      answered = Math.min(answered, performance.now());
      response.writeHead(refused ? 429 : 200, { "retry-after": "1" }).end();
    },
  ];
  await using here = await setUp(steps, { rate: "40/s", lateness: "50ms", retry: { minBackoff: "500ms" } });
  const { client, upstream } = here;
  const tickets = [];
  for (let i = 0; i < 15; i++) tickets.push(await client.enqueue(`${upstream.url}/${i}`));
  const attempts = await Promise.all(tickets.map(async (ticket) => (await ticket.result()).attempts));
  expect(refusals).toBeGreaterThan(1);
  expect(attempts.filter((made) => made === 2).length).toBe(refusals);
  const late = upstream.arrivals.filter(({ at }) => at > answered + 900);
  const after = late.map(({ url }) => Number(url.slice(1)));
  const again = after.filter((n) => n < refusals);
  expect(again.toSorted((a, b) => a - b)).toEqual(Array.from({ length: refusals }, (_, i) => i));
  // Jitter would swap about half of all pairs of them. On a busy machine, one connection may overtake another.
  const swapped = again.flatMap((n, i) => again.slice(i + 1).filter((later) => later < n));
  expect(swapped.length).toBeLessThanOrEqual(2);
  // On a busy machine, a call or two that held slots when the pause came keep their places before them.
  expect(after.slice(0, refusals + 3)).toEqual(expect.arrayContaining(again));
});

test("other statuses are answers", async () => {
  await using here = await setUp([answer(404)]);
  const { client, upstream } = here;
  const result = await (await client.enqueue(upstream.url)).result();
  expect(result).toMatchObject({ status: 404, ok: false, attempts: 1 });
});

test("timeout bounds each attempt", async () => {
  await using here = await setUp([hang, hang, answer(200)], { timeout: "100ms" });
  const { client, upstream } = here;
  const result = await (await client.enqueue(upstream.url)).result();
  expect(result).toMatchObject({ status: 200, attempts: 3 });
});

test("a body that never ends is bounded by timeout as well", async () => {
  const trickle: Step = (response) => response.writeHead(200).write("some");
  await using here = await setUp([trickle], { timeout: "100ms", retry: false });
  const { client, upstream } = here;
  const ticket = await client.enqueue(upstream.url);
  await expect(ticket.result()).rejects.toMatchObject({ code: "ERR_UPSTREAM", attempts: 1, status: undefined });
});

test("a response larger than maxResponseBytes is dropped with a mark", async () => {
  const big: Step = (response) => response.writeHead(200, { "x-kept": "yes" }).end("x".repeat(2_000));
  await using here = await setUp([big], { maxResponseBytes: 1_999 });
  const { client, upstream } = here;
  const result = await (await client.enqueue(upstream.url)).result();
  expect(result).toMatchObject({ status: 200, bodyDropped: true });
  expect(result.body.byteLength).toBe(0);
  expect(result.headers.get("x-kept")).toBe("yes");
});

test("feedback hears a body whole, or not at all where that is too large", async () => {
  const mebibyte = 1_048_576;
  const bodies = [100_000, mebibyte, mebibyte + 1, 3 * mebibyte].map((bytes) => Buffer.alloc(bytes, "x"));
  const heard: unknown[] = [];
  const feedback: LimitOptions["feedback"] = ({ body }) => void heard.push(body?.length);
  const steps = bodies.map((body) => answerWith({}, body));
  await using here = await setUp(steps, { feedback, maxResponseBytes: 2 * mebibyte });
  for (const _ of bodies) await (await here.client.enqueue(here.upstream.url)).result();
  expect(heard).toEqual([100_000, mebibyte, undefined, undefined]);
});

test("a body that the server has compressed is kept decoded, also for feedback", async () => {
  const json = JSON.stringify({ used: 7 });
  const heard: unknown[] = [];
  const steps: [string, Buffer][] = [
    ["gzip", gzipSync(json)],
    ["X-GZIP", gzipSync(json)],
    ["deflate", deflateSync(json)],
    ["deflate", deflateRawSync(json)],
    ["br", brotliCompressSync(json)],
    // In the order in which they were applied; and what ends before its checksum, fetch takes, too.
    ["identity, gzip,br", brotliCompressSync(gzipSync(json))],
    ["gzip", gzipSync(json).subarray(0, -8)],
  ];
  const feedback: LimitOptions["feedback"] = ({ body }) => void heard.push(body);
  const encoded = ([encoding, body]: [string, Buffer]): Step => answerWith({ "content-encoding": encoding }, body);
  await using here = await setUp(steps.map(encoded), { feedback });
  for (const [encoding] of steps) {
    const result = await (await here.client.enqueue(here.upstream.url)).result();
    expect([encoding, result.text()]).toEqual([encoding, json]);
    // Whoever goes by the headers does not decode it again.
    expect(result.headers.has("content-encoding") || result.headers.has("content-length")).toBe(false);
  }
  expect(heard).toEqual(steps.map(() => json));
});

test("what cannot be decoded stays as it came, and what would be too large is dropped", async () => {
  const steps: [string, Buffer][] = [
    ["gzip", Buffer.from("no gzip")],
    ["zstd", Buffer.from("unknown")],
    ["constructor", Buffer.from("no encoding")],
    ["gzip", Buffer.alloc(0)],
    ["gzip", gzipSync(Buffer.alloc(1_000, "x"))],
    ["gzip", gzipSync(Buffer.alloc(1_001, "x"))],
  ];
  const encoded = ([encoding, body]: [string, Buffer]): Step => answerWith({ "content-encoding": encoding }, body);
  await using here = await setUp(steps.map(encoded), { maxResponseBytes: 1_000 });
  const results = [];
  for (const _ of steps) results.push(await (await here.client.enqueue(here.upstream.url)).result());
  expect(results.map((result) => result.text())).toEqual([
    "no gzip",
    "unknown",
    "no encoding",
    "",
    "x".repeat(1_000),
    "",
  ]);
  expect(results.map(({ bodyDropped }) => bodyDropped)).toEqual([false, false, false, false, false, true]);
  expect(results[1]?.headers.get("content-encoding")).toBe("zstd");
});

test("headers are made before each attempt and never enter Redis", async () => {
  const secrets: string[] = [];
  const headers = () => {
    secrets.push(`secret-${secrets.length}-5f1c`);
    return { authorization: secrets.at(-1) ?? "" };
  };
  await using here = await setUp([answer(503), answer(200), answer(503)], { headers });
  const { client, upstream, prefix } = here;
  const bucket = client.limit(upstream.host);
  const good = await client.enqueue(`${upstream.url}/visible-in-redis`, { headers: { "x-own": "1" } });
  await good.result();
  const bad = await client.enqueue(upstream.url);
  await expect(bad.result()).rejects.toMatchObject({ code: "ERR_UPSTREAM" });
  await bucket.pause("1h");
  await client.enqueue(`${upstream.url}/visible-in-redis`);

  expect(upstream.arrivals.map((arrival) => arrival.headers.authorization)).toEqual(secrets);
  expect(upstream.arrivals[0]?.headers["x-own"]).toBe("1");
  expect(secrets.length).toBe(5);
  const all = await everything(prefix);
  expect(all).toContain("visible-in-redis");
  expect(all).not.toContain("5f1c");
});

/** All that Redis holds under a prefix, as text. */
async function everything(prefix: string): Promise<string> {
  await using redis = look();
  const seen: unknown[] = [];
  for await (const keys of redis.scanStream({ match: `${prefix}*` }) as AsyncIterable<string[]>) {
    for (const key of keys) {
      const type = await redis.type(key);
      const read = {
        string: () => redis.get(key),
        hash: () => redis.hgetall(key),
        list: () => redis.lrange(key, 0, -1),
        set: () => redis.smembers(key),
        zset: () => redis.zrange(key, 0, "-1"),
        stream: () => redis.xrange(key, "-", "+"),
      }[type];
      if (read === undefined) throw new Error(`${key} is a ${type}`);
      seen.push(key, await read());
    }
  }
  return JSON.stringify(seen);
}

test("a headers function that fails counts as a failed attempt", async () => {
  let calls = 0;
  const headers = () => {
    calls++;
    if (calls < 3) throw Object.assign(new Error("token service timed out"), { name: "AbortError" });
    return {};
  };
  await using here = await setUp([answer(200)], { headers });
  const { client, upstream } = here;
  const result = await (await client.enqueue(upstream.url)).result();
  expect(result).toMatchObject({ status: 200, attempts: 3 });
  expect(upstream.arrivals.length).toBe(1);
});

test("what a headers function throws is no error of the call itself, even if it is one of spillway", async () => {
  let calls = 0;
  const headers = () => {
    if (++calls < 3) throw new QueueFullError({ limit: "tokens", capacity: 1, depth: 1, retryAfter: 5 });
    return {};
  };
  await using here = await setUp([answer(200)], { headers });
  const { client, upstream } = here;
  const causes: string[] = [];
  client.events.on("retry", ({ cause }) => causes.push(cause));
  expect(await (await client.enqueue(upstream.url)).result()).toMatchObject({ status: 200, attempts: 3 });
  expect(causes[0]).toMatch(/^The `headers` function of the limit failed: No room in the queue of limit "tokens"/);
});

test("a headers function that never ends has no longer than an attempt", async () => {
  const headers = (): Promise<never> => new Promise(() => {});
  await using here = await setUp([answer(200)], { headers, timeout: "50ms", retry: { attempts: 2, minBackoff: 1 } });
  const { client, upstream } = here;
  const ticket = await client.enqueue(upstream.url);
  const result = bounded(ticket.result(), 10_000, "the end of the call");
  await expect(result).rejects.toMatchObject({ code: "ERR_UPSTREAM", attempts: 2 });
  await expect(result).rejects.toThrow("The `headers` function of the limit failed: no headers within 50 ms");
  expect(upstream.arrivals).toEqual([]);
});

test("the slot of a call that was not sent is that of the next one", async () => {
  let calls = 0;
  const headers = () => {
    if (++calls === 1) throw new Error("no token");
    return {};
  };
  await using here = await setUp([answer(200)], { headers, rate: "1/h", retry: false });
  const { client, upstream } = here;
  await expect((await client.enqueue(upstream.url)).result()).rejects.toMatchObject({ code: "ERR_UPSTREAM" });
  const next = (await client.enqueue(upstream.url)).result();
  expect(await bounded(next, 10_000, "the next call")).toMatchObject({ status: 200 });
});

test("a worker that closes does not wait for a headers function; the call goes back", async () => {
  let asked = false;
  const headers = (): Promise<never> => new Promise(() => void (asked = true));
  await using upstream = await startUpstream();
  const [redis, prefix] = [redisUrl(), uniquePrefix()];
  await using client = createClient({ redis, prefix, limits: defineLimits({ [upstream.host]: { rate: "100/s" } }) });
  const worker = createWorker({ redis, prefix, limits: defineLimits({ [upstream.host]: { rate: "100/s", headers } }) });
  const ticket = await client.enqueue(upstream.url, { method: "POST", body: "once" });
  await until(() => asked);
  await bounded(worker.close(), 10_000, "the worker to close");
  await using _other = createWorker({ redis, prefix, limits: defineLimits({ [upstream.host]: { rate: "100/s" } }) });
  expect(await ticket.result()).toMatchObject({ status: 200, attempts: 1 });
});

/** A call whose first attempt has failed, and whose second one has a slot behind a pause; its backoff is over. */
async function pausedBeforeRetry({ upstream, client, prefix }: Here): Promise<{ ticket: Ticket; bucket: LimitHandle }> {
  const bucket = client.limit(upstream.host);
  const paused: Promise<string>[] = [];
  client.events.on("retry", (event) => paused.push(bucket.pause("1m").then(() => event.bucket)));
  const ticket = await client.enqueue(upstream.url);
  const name = await until(() => paused[0]);
  await using redis = look();
  await until(async () => (await redis.zcard(`${prefix}:{${name}}:later`)) > 0);
  return { ticket, bucket };
}

test("headers are made anew for a call that has waited for its slot after they were made", async () => {
  const made: number[] = [];
  const headers = () => ({ authorization: String(made.push(performance.now())) });
  await using here = await setUp([answer(503), answer(200)], { headers });
  const { ticket, bucket } = await pausedBeforeRetry(here);
  expect(made).toHaveLength(2);
  // What the limit adds is good for a second.
  await until(() => performance.now() - (made[1] ?? 0) > 1200);
  await bucket.resume();
  expect(await bounded(ticket.result(), 10_000, "the retry")).toMatchObject({ status: 200, attempts: 2 });
  expect(here.upstream.arrivals.map((arrival) => arrival.headers.authorization)).toEqual(["1", "3"]);
});

test("Retry-After closes the gate for all processes", async () => {
  let refused = false;
  await using upstream = await startUpstream({
    handler(request, response) {
      const refuse = request.url === "/?n=d10" && !refused;
      refused ||= refuse;
      response.writeHead(refuse ? 429 : 200, refuse ? { "retry-after": "2" } : {}).end();
    },
  });
  const setup = { prefix: uniquePrefix(), limits: { [upstream.host]: { rate: "50/s", lateness: "50ms" } } } as const;
  const nodes = await startNodes(2, "both", setup);
  const all = await Promise.all([
    nodes[0]?.ask<Ends>("fetch", { url: upstream.url, count: 40, tag: "f" }),
    nodes[1]?.ask<Ends>("deliver", { url: upstream.url, count: 40, tag: "d" }),
  ]);
  expect(all.map((each) => each?.ends)).toEqual([{ ok: 40 }, { ok: 40 }]);
  await endAll(nodes);
  const [first, second] = upstream.arrivals.filter(({ url }) => url === "/?n=d10").map(({ at }) => at);
  if (first === undefined || second === undefined) throw new Error("Expected two attempts");
  expect(second).toBeGreaterThan(first + 2_000);
  expect(upstream.arrivals.filter(({ at }) => at > first + 500 && at < first + 2_000)).toEqual([]);
  // There was something to hold back.
  expect(upstream.arrivals.filter(({ at }) => at > first + 2_000).length).toBeGreaterThan(20);
});

test("concurrency is shared by all processes, kept, and used to the full", async () => {
  let now = 0;
  const seen: number[] = [];
  await using upstream = await startUpstream({
    async handler(_request, response) {
      seen.push(++now);
      await sleep(100);
      now--;
      response.end("ok");
    },
  });
  const setup = { prefix: uniquePrefix(), limits: { [upstream.host]: { rate: "1000/s", concurrency: 4 } } } as const;
  const nodes = await startNodes(2, "both", setup);
  const all = await Promise.all([
    nodes[0]?.ask<Ends>("fetch", { url: upstream.url, count: 20 }),
    nodes[0]?.ask<Ends>("deliver", { url: upstream.url, count: 20 }),
    nodes[1]?.ask<Ends>("fetch", { url: upstream.url, count: 20 }),
    nodes[1]?.ask<Ends>("deliver", { url: upstream.url, count: 20 }),
  ]);
  expect(all.map((each) => each?.ends)).toEqual(Array.from({ length: 4 }, () => ({ ok: 20 })));
  await endAll(nodes);
  expect(Math.max(...seen)).toBe(4);
  // Where four end together, the next four arrive as 1, 2, 3, 4: a quarter of the 80, or a little less, but not once and
  // never again.
  expect(seen.filter((calls) => calls === 4).length).toBeGreaterThan(10);
});

test("a retry that waits for the end of a pause starts when it is lifted", async () => {
  await using here = await setUp([answer(503), answer(200)], { retry: { minBackoff: "500ms" } });
  const { ticket, bucket } = await pausedBeforeRetry(here);
  await bucket.resume();
  expect(await bounded(ticket.result(), 10_000, "the retry")).toMatchObject({ status: 200, attempts: 2 });
});
