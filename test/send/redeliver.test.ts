/** A durable call whose attempts have all failed comes back later, from the end of its queue. */
import { type Client, createClient, createWorker, defineLimits, type LimitOptions, type Limits } from "spillway";
import { expect, test, vi } from "vitest";
import { redisUrl, uniquePrefix } from "../helpers/redis.js";
import { startUpstream, type Upstream } from "../helpers/upstream.js";
import { until } from "../helpers/wait.js";
import { startNode } from "./nodes.js";

// Generous: only a hang should end a test on a busy machine.
vi.setConfig({ testTimeout: 90_000 });

const DAY_MS = 86_400_000;
/** Nothing comes back earlier than after a second. */
const SOON = { attempts: 5, backoff: "1s" } as const;
const POST = { method: "POST", body: "x" } as const;

interface Place extends AsyncDisposable {
  readonly upstream: Upstream;
  readonly client: Client;
  readonly prefix: string;
  readonly options: Record<string, LimitOptions>;
  readonly limits: Limits;
  /** A worker that sees within a third of a second what is due; its `redeliver` events are told. */
  work(): AsyncDisposable & { close(): Promise<void> };
  readonly told: { readonly at: Date; readonly cause: string }[];
  redelivering(): Promise<number>;
}

/** A server that answers with these statuses, the last one for all further requests; 0 breaks the connection. */
async function setUp(statuses: readonly number[], options: Partial<LimitOptions>, headers = {}): Promise<Place> {
  let taken = 0;
  const upstream = await startUpstream({
    handler(_request, response) {
      const status = statuses[Math.min(taken++, statuses.length - 1)] ?? 200;
      if (status === 0) response.destroy();
      else response.writeHead(status, headers).end();
    },
  });
  const prefix = uniquePrefix();
  const all = { [upstream.host]: { rate: "200/s", retry: { attempts: 1 }, ...options } } as const;
  const limits: Limits = defineLimits(all);
  const client = createClient({ redis: redisUrl(), prefix, limits });
  const told: Place["told"] = [];
  const open: AsyncDisposable[] = [client];
  return {
    upstream,
    client,
    prefix,
    options: all,
    limits,
    told,
    work() {
      const worker = createWorker({ redis: redisUrl(), prefix, limits, lockDuration: "1s" });
      worker.events.on("redeliver", (event) => told.push(event));
      open.push(worker);
      return worker;
    },
    redelivering: async () => (await client.limit(upstream.host).stats()).redelivering,
    async [Symbol.asyncDispose]() {
      for (const one of open.toReversed()) await one[Symbol.asyncDispose]();
      await upstream.close();
    },
  };
}

test("it comes back, whatever its method, after twice the time each time, until it is answered", async () => {
  await using here = await setUp([503, 0, 200], { redeliver: SOON });
  const { client, upstream, told } = here;
  here.work();
  const ticket = await client.enqueue(upstream.url, POST);
  await until(async () => (await here.redelivering()) === 1);
  expect(await client.limit(upstream.host).stats()).toMatchObject({ depth: 0, waiting: 0, active: 0, failed: 0 });
  expect(await ticket.result()).toMatchObject({ status: 200, attempts: 3 });
  const [first = 0, second = 0, third = 0] = upstream.arrivals.map(({ at }) => at);
  expect(second - first).toBeGreaterThanOrEqual(990);
  expect(third - second).toBeGreaterThanOrEqual(1990);
  expect(told.map(({ cause }) => cause)).toEqual(["The server answered with status 503", expect.any(String)]);
  expect(await here.redelivering()).toBe(0);
});

test("with all its attempts each time, and so often as its limit says", async () => {
  await using here = await setUp([503], {
    redeliver: { ...SOON, attempts: 1 },
    retry: { attempts: 2, minBackoff: "10ms" },
  });
  here.work();
  const ticket = await here.client.enqueue(here.upstream.url);
  await expect(ticket.result()).rejects.toMatchObject({ code: "ERR_UPSTREAM", status: 503, attempts: 4 });
  expect(here.upstream.arrivals).toHaveLength(4);
  expect(here.told).toHaveLength(1);
  expect(await here.client.limit(here.upstream.host).failed()).toHaveLength(1);
});

test.each([
  ["redeliver is false", { redeliver: false }, {}],
  ["it would be too old then", { redeliver: { backoff: "1s", maxAge: "900ms" } }, {}],
  ["the server does not want it again", { redeliver: SOON }, { "x-should-retry": "false" }],
] as const)("it does not come back when %s", async (_why, options, headers) => {
  await using here = await setUp([503], options, headers);
  here.work();
  const ticket = await here.client.enqueue(here.upstream.url);
  await expect(ticket.result()).rejects.toMatchObject({ code: "ERR_UPSTREAM", attempts: 1 });
  expect(here.told).toEqual([]);
  expect(await here.redelivering()).toBe(0);
});

test("nor when it was never sent, or answered", async () => {
  await using here = await setUp([404], { redeliver: SOON });
  const { client, upstream } = here;
  const bucket = client.limit(upstream.host);
  await bucket.pause("1h");
  const late = await client.enqueue(upstream.url, { maxWait: "50ms" });
  here.work();
  await expect(late.result()).rejects.toMatchObject({ code: "ERR_WAIT_EXCEEDED", maxWait: 50 });
  await bucket.resume();
  expect(await (await client.enqueue(upstream.url)).result()).toMatchObject({ status: 404 });
  expect(here.told).toEqual([]);
});

test.each([
  ["5m", "3d", 300_000],
  ["2d", "9d", 2 * DAY_MS],
] as const)("the first wait is backoff (%s) and up to a tenth more", async (backoff, maxAge, waitMs) => {
  await using here = await setUp([503], { redeliver: { backoff, maxAge } });
  here.work();
  const from = Date.now();
  const ticket = await here.client.enqueue(here.upstream.url);
  await until(() => here.told.length === 1);
  const wait = (here.told[0]?.at.getTime() ?? 0) - from;
  expect(wait).toBeGreaterThanOrEqual(waitMs - 100);
  expect(wait).toBeLessThanOrEqual(waitMs * 1.1 + 5_000);
  await until(async () => (await here.redelivering()) === 1);
  await ticket.cancel();
  await expect(ticket.result()).rejects.toMatchObject({ code: "ERR_CANCELLED" });
  expect(await here.redelivering()).toBe(0);
});

test("it takes no place from others while it is away", async () => {
  await using here = await setUp([503, 503, 200], { redeliver: { backoff: "1h" }, capacity: 2, overflow: "reject" });
  const { client, upstream } = here;
  const worker = here.work();
  await client.enqueueMany([{ url: upstream.url }, { url: upstream.url }]);
  await until(async () => (await here.redelivering()) === 2);
  await worker.close();
  const { tickets } = await client.enqueueMany([{ url: upstream.url }, { url: upstream.url }]);
  await expect(client.enqueue(upstream.url)).rejects.toMatchObject({ code: "ERR_QUEUE_FULL", depth: 2 });
  here.work();
  for (const ticket of tickets) expect(await ticket.result()).toMatchObject({ status: 200 });
  expect(await client.limit(upstream.host).clear()).toBe(2);
});

test("it survives the close of its worker, and is sent by another one", async () => {
  await using here = await setUp([503, 200], { redeliver: SOON });
  const first = here.work();
  const ticket = await here.client.enqueue(here.upstream.url, POST);
  await until(async () => (await here.redelivering()) === 1);
  await first.close();
  expect(await here.redelivering()).toBe(1);
  here.work();
  expect(await ticket.result()).toMatchObject({ status: 200, attempts: 2 });
});

test("it survives the death of its worker", async () => {
  await using here = await setUp([503, 200], { redeliver: SOON });
  const { prefix, options } = here;
  const doomed = await startNode("worker", { prefix, limits: options, worker: { lockDuration: "1s" } });
  const ticket = await here.client.enqueue(here.upstream.url, POST);
  await until(async () => (await here.redelivering()) === 1);
  await doomed.kill("SIGKILL");
  here.work();
  expect(await ticket.result()).toMatchObject({ status: 200, attempts: 2 });
  expect(here.upstream.arrivals).toHaveLength(2);
});
