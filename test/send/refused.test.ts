/** A refusal, mostly with status 429, is no attempt: the call waits and goes again until its `maxWait` is over. */
import { type Client, createClient, createWorker, defineLimits, type LimitOptions, type Limits } from "spillway";
import { expect, test, vi } from "vitest";
import { redisUrl, uniquePrefix } from "../helpers/redis.js";
import { startUpstream, type Upstream } from "../helpers/upstream.js";
import { until } from "../helpers/wait.js";
import { look } from "./nodes.js";

// Generous: only a hang should end a test on a busy machine.
vi.setConfig({ testTimeout: 90_000 });

type Step = number | readonly [number, Record<string, string>];

interface Place extends AsyncDisposable {
  readonly upstream: Upstream;
  readonly client: Client;
  readonly prefix: string;
  readonly limits: Limits;
  /** What the `retry` events told. */
  readonly told: readonly string[];
}

/** A server that answers with these statuses, the last one for all further requests; and a client that also sends. */
async function setUp(steps: readonly Step[], options: Partial<LimitOptions> = {}, worker = true): Promise<Place> {
  let taken = 0;
  const upstream = await startUpstream({
    handler(_request, response) {
      const step = steps[Math.min(taken++, steps.length - 1)] ?? 200;
      const [status, headers] = typeof step === "number" ? [step, {}] : step;
      response.writeHead(status, headers).end();
    },
  });
  const prefix = uniquePrefix();
  const limits: Limits = defineLimits({
    [upstream.host]: { rate: "200/s", retry: { minBackoff: "10ms", maxBackoff: "40ms" }, ...options },
  });
  const client = createClient({ redis: redisUrl(), prefix, limits, worker });
  const told: string[] = [];
  client.events.on("retry", ({ attempt, willRetry }) => told.push(`${attempt} ${willRetry}`));
  const end = async (): Promise<void> => {
    await client.close();
    await upstream.close();
  };
  return { upstream, client, prefix, limits, told, [Symbol.asyncDispose]: end };
}

const POST = { method: "POST", body: "x" };

test.each([{}, POST])("however often it is refused, a call goes again: %j", async (init) => {
  await using here = await setUp([429, 429, 429, 429, 429, 429, 200]);
  const result = await (await here.client.enqueue(here.upstream.url, init)).result();
  expect(result).toMatchObject({ status: 200, attempts: 7 });
  expect(here.upstream.arrivals).toHaveLength(7);
  expect(here.told).toEqual([1, 2, 3, 4, 5, 6].map((n) => `${n} true`));
});

const soon = `${Math.floor(Date.now() / 1000) - 1}`;
test.each<[string, Step, Partial<LimitOptions>]>([
  ["Retry-After", [403, { "retry-after": "0.05" }], {}],
  ["GitHub", [403, { "x-github-request-id": "1", "x-ratelimit-remaining": "0", "x-ratelimit-reset": soon }], {}],
  ["a reader of one's own", 403, { feedback: ({ status }) => (status === 403 ? { pauseFor: 20 } : undefined) }],
  [
    "a reader of one's own, and `statuses`",
    400,
    { feedback: ({ status }) => (status === 400 ? { pauseFor: 20 } : undefined), retry: { statuses: [400, 429] } },
  ],
])("so it does where the refusal has another status, and says so: %s", async (_by, refusal, options) => {
  await using here = await setUp([refusal, refusal, refusal, refusal, 200], options);
  const result = await (await here.client.enqueue(here.upstream.url, POST)).result();
  expect(result).toMatchObject({ status: 200, attempts: 5 });
  expect(await here.client.limit(here.upstream.host).usage(60)).toMatchObject({ sent: 5, throttled: 4 });
});

test("a 403 that says nothing of the kind is an answer, and so is any with retry: false", async () => {
  await using here = await setUp([403, 200]);
  expect((await (await here.client.enqueue(here.upstream.url)).result()).status).toBe(403);
  await using never = await setUp([[403, { "retry-after": "0.05" }], 200], { retry: false });
  expect((await (await never.client.enqueue(never.upstream.url)).result()).status).toBe(403);
});

test("a reader that paces all calls makes no refusal of an answer", async () => {
  await using here = await setUp([404, 200], { feedback: () => ({ pauseFor: 20 }) });
  expect((await (await here.client.enqueue(here.upstream.url)).result()).status).toBe(404);
});

test("other failures count as before, however many refusals lie between them", async () => {
  await using here = await setUp([503, 429, 429, 503, 429, 502]);
  const ticket = await here.client.enqueue(here.upstream.url);
  await expect(ticket.result()).rejects.toMatchObject({ code: "ERR_UPSTREAM", status: 502, attempts: 6 });
  expect(here.told.at(-1)).toBe("6 false");
});

test("a POST that was refused is not repeated for another failure", async () => {
  await using here = await setUp([429, 503, 200]);
  const ticket = await here.client.enqueue(here.upstream.url, POST);
  await expect(ticket.result()).rejects.toMatchObject({ code: "ERR_UPSTREAM", status: 503, attempts: 2 });
});

test("with retry: false never", async () => {
  await using here = await setUp([429, 200], { retry: false });
  const ticket = await here.client.enqueue(here.upstream.url);
  await expect(ticket.result()).rejects.toMatchObject({ code: "ERR_UPSTREAM", status: 429, attempts: 1 });
  expect(here.upstream.arrivals).toHaveLength(1);
});

test("with one attempt, a refusal is still none", async () => {
  await using here = await setUp([429, 429, 200], { retry: { attempts: 1, minBackoff: "10ms" } });
  expect(await (await here.client.enqueue(here.upstream.url)).result()).toMatchObject({ status: 200, attempts: 3 });
});

test("where 429 is not among the statuses, it is an answer", async () => {
  await using here = await setUp([429], { retry: { statuses: [503] } });
  expect(await (await here.client.enqueue(here.upstream.url)).result()).toMatchObject({ status: 429, attempts: 1 });
});

test("a server that does not want the call again is obeyed", async () => {
  await using here = await setUp([[429, { "x-should-retry": "false" }], 200]);
  const ticket = await here.client.enqueue(here.upstream.url);
  await expect(ticket.result()).rejects.toMatchObject({ status: 429, attempts: 1 });
});

test.each([
  ["of the limit", { maxWait: "700ms" } as const, {}],
  ["of the call", { maxWait: "1h" } as const, { maxWait: 700 } as const],
])("when the maxWait %s is over, refusals count", async (_whose, options, init) => {
  await using here = await setUp([429], options);
  const { client, upstream } = here;
  await client.limit(upstream.host).stats();
  const from = performance.now();
  const [get, post] = await Promise.all([
    client.enqueue(upstream.url, init),
    client.enqueue(upstream.url, { ...POST, ...init }),
  ]);
  const [a, b] = await Promise.all([get, post].map((ticket) => ticket.result().catch((error: unknown) => error)));
  expect(performance.now() - from).toBeGreaterThan(690);
  expect(a).toMatchObject({ code: "ERR_UPSTREAM", status: 429 });
  expect(b).toMatchObject({ code: "ERR_UPSTREAM", status: 429 });
  // At least every 40 ms, but for what the machine takes.
  expect(upstream.arrivals.length).toBeGreaterThan(8);
});

test("a refusal for longer than the call may wait counts at once", async () => {
  await using here = await setUp([[429, { "retry-after": "60" }]], { maxWait: "10s" });
  const ticket = await here.client.enqueue(here.upstream.url, POST);
  const from = performance.now();
  await expect(ticket.result()).rejects.toMatchObject({ status: 429, attempts: 1 });
  expect(performance.now() - from).toBeLessThan(9_000);
});

test("where the server says how long to wait, there is no backoff besides", async () => {
  const retry = { minBackoff: "20s" } as const;
  await using here = await setUp([[429, { "retry-after": "1" }], 200], { retry });
  const from = performance.now();
  expect(await (await here.client.enqueue(here.upstream.url)).result()).toMatchObject({ status: 200, attempts: 2 });
  const [first, second] = here.upstream.arrivals.map(({ at }) => at);
  expect((second ?? 0) - (first ?? 0)).toBeGreaterThanOrEqual(990);
  expect(performance.now() - from).toBeLessThan(15_000);
});

test("the budget of a bucket that has spent it: retries end, refusals do not", async () => {
  await using here = await setUp([503, 429, 429, 200]);
  const { client, upstream, prefix } = here;
  await using redis = look();
  // Nobody has anything left for a hundred hours.
  await client.limit(upstream.host).stats();
  const spent = { budget: "-60000", budgetAt: String(Date.now() * 1000), budgetFirsts: "1000" };
  await redis.hset(`${prefix}:{${encodeURIComponent(upstream.host)}}:gate`, spent);
  const failed = await client.enqueue(upstream.url);
  await expect(failed.result()).rejects.toMatchObject({ status: 503, attempts: 1 });
  expect(here.told).toEqual(["1 false"]);
  expect(await (await client.enqueue(upstream.url)).result()).toMatchObject({ status: 200, attempts: 3 });
});

test("an outage is met with the retries that are saved up, and not with more", { timeout: 90_000 }, async () => {
  await using here = await setUp([503], {
    rate: "1000/s",
    capacity: 500,
    retry: { attempts: 10, minBackoff: "1ms", maxBackoff: "5ms", budget: 0.1 },
  });
  const { client, upstream } = here;
  const from = performance.now();
  const { tickets } = await client.enqueueMany(Array.from({ length: 200 }, () => ({ url: upstream.url })));
  await Promise.all(tickets.map((ticket) => ticket.result().catch(() => {})));
  const more = upstream.arrivals.length - 200;
  expect(more).toBeGreaterThanOrEqual(100);
  // 100, a tenth of 200, and ten a minute.
  expect(more).toBeLessThanOrEqual(120 + (performance.now() - from) / 6000 + 1);
});

test("a worker that closes hands on which attempts counted", async () => {
  await using here = await setUp(
    [503, [429, { "retry-after": "2" }], 503],
    { retry: { attempts: 2, minBackoff: "10ms" } },
    false,
  );
  const { client, upstream, prefix, limits } = here;
  const first = createWorker({ redis: redisUrl(), prefix, limits });
  const ticket = await client.enqueue(upstream.url);
  await until(() => upstream.arrivals.length === 2);
  await until(async () => (await client.limit(upstream.host).stats()).paused !== undefined);
  await first.close();
  expect(await client.limit(upstream.host).stats()).toMatchObject({ waiting: 1, active: 0, depth: 0 });
  await using _second = createWorker({ redis: redisUrl(), prefix, limits });
  await expect(ticket.result()).rejects.toMatchObject({ status: 503, attempts: 3 });
});
