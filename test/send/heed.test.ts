import { createClient, defineLimits } from "spillway";
import { expect, test } from "vitest";
import { redisUrl, uniquePrefix } from "../helpers/redis.js";
import { type Handler, startUpstream } from "../helpers/upstream.js";
import { until } from "../helpers/wait.js";

const open = (host: string, options: object): ReturnType<typeof createClient> => {
  const limits = defineLimits({ [host]: { rate: "50/s", lateness: "50ms", ...options } });
  return createClient({ redis: redisUrl(), prefix: uniquePrefix(), limits, worker: true });
};

/** Answers the first call in this way, and all others with 200. */
const first = (status: number, headers: Record<string, string>): Handler => {
  let asked = false;
  return (_request, response) => {
    response.writeHead(asked ? 200 : status, asked ? {} : headers).end();
    asked = true;
  };
};

test("what fetch is told with a 429 closes the gate, for waiting calls as well", async () => {
  await using upstream = await startUpstream({ handler: first(429, { "retry-after": "1" }) });
  await using client = open(upstream.host, {});
  const pauses: string[] = [];
  client.events.on("pause", ({ reason }) => pauses.push(reason));
  const statuses = await Promise.all(Array.from({ length: 30 }, async () => (await client.fetch(upstream.url)).status));
  expect(statuses.filter((status) => status === 429)).toHaveLength(1);
  const [{ at } = { at: 0 }, ...others] = upstream.arrivals;
  expect(others.filter((one) => one.at > at + 150 && one.at < at + 1000)).toEqual([]);
  expect(others.filter((one) => one.at >= at + 1000).length).toBeGreaterThan(15);
  expect(pauses).toEqual(["status 429, Retry-After"]);
});

test("an answer that leaves nothing closes the gate before anybody is refused", async () => {
  const headers = { "x-ratelimit-remaining": "0", "x-ratelimit-reset": "1" };
  await using upstream = await startUpstream({ handler: first(200, headers) });
  await using client = open(upstream.host, { rate: "10/s" });
  for (let i = 0; i < 3; i++) await (await client.fetch(upstream.url)).text();
  const [gap = 0] = upstream.gaps();
  expect(gap).toBeGreaterThan(990);
});

test("learn keeps to the window that the server names; without it nothing changes", async () => {
  await using upstream = await startUpstream({
    handler: (_request, response) => void response.writeHead(200, { "ratelimit-policy": '"p";q=3;w=1' }).end(),
  });
  for (const learn of [false, true]) {
    await using client = open(upstream.host, { learn });
    await (await client.fetch(upstream.url)).text();
    if (learn) {
      await until(async () => (await client.limit(upstream.host).stats()).learned.length > 0, {
        what: "the window is known",
      });
      expect((await client.limit(upstream.host).stats()).learned).toEqual([{ limit: 3, perMs: 1000 }]);
    } else expect((await client.limit(upstream.host).stats()).learned).toEqual([]);
    const before = upstream.arrivals.length;
    await Promise.all(Array.from({ length: 6 }, async () => (await client.fetch(upstream.url)).text()));
    const ats = upstream.arrivals.slice(before).map(({ at }) => at);
    const took = (ats.at(-1) ?? 0) - (ats[0] ?? 0);
    if (learn) expect(took).toBeGreaterThan(900);
  }
});

test("adaptive halves the rate once for all calls in flight, and tells", async () => {
  await using upstream = await startUpstream({ handler: first(429, {}) });
  await using client = open(upstream.host, { adaptive: true });
  const shares: number[] = [];
  client.events.on("slow", ({ share }) => shares.push(share));
  expect((await client.limit(upstream.host).stats()).share).toBe(1);
  await (await client.fetch(upstream.url)).text();
  await until(() => shares.length === 1, { what: "the refusal is heard" });
  expect(shares).toEqual([0.5]);
  const { share } = await client.limit(upstream.host).stats();
  expect(share).toBeGreaterThanOrEqual(0.5);
  expect(share).toBeLessThan(0.7);
});

test("a reader of one's own is asked, and what it throws is told", async () => {
  await using upstream = await startUpstream({
    handler: (_request, response) => void response.writeHead(200, { "x-wait": "700" }).end(),
  });
  let asked = 0;
  const feedback = ({ headers }: { headers: { get(name: string): string | null | undefined } }): object => {
    if (++asked > 1) throw new Error("enough");
    return { pauseFor: Number(headers.get("X-Wait")) };
  };
  await using client = open(upstream.host, { feedback });
  const warnings: string[] = [];
  client.events.on("warning", ({ message }) => warnings.push(message));
  for (let i = 0; i < 2; i++) await (await client.fetch(upstream.url)).text();
  expect(upstream.gaps()[0]).toBeGreaterThan(690);
  expect(warnings).toEqual([`${upstream.host}: feedback: enough`]);
});
