/** `client.fetch` and redirects: every request of a chain waits for a slot of the host that it goes to. */
import { expect, test } from "vitest";
import { type Handler, startUpstream, type Upstream } from "../helpers/upstream.js";
import { until } from "../helpers/wait.js";
import { type Definition, ending, openDesk, openPair, type Pair } from "./desk.js";

/** Sends everybody on to the same path of `to()`. */
const leading =
  (to: () => string, status = 302, headers: Record<string, string> = {}): Handler =>
  (request, response) =>
    void response.writeHead(status, { location: to() + request.url, ...headers }).end("moved");

/** `from` leads to `to`. */
async function pair(
  options: {
    define?: (from: string, to: string) => Definition;
    handler?: Handler;
    moved?: Record<string, string>;
  } = {},
): Promise<Pair> {
  const to = await startUpstream({ bodies: true, ...(options.handler && { handler: options.handler }) });
  const from = await startUpstream({ bodies: true, handler: leading(() => to.url, 302, options.moved) });
  return openPair({ from, to }, options.define);
}

test("a redirect waits for a slot of the host that it leads to", async () => {
  await using p = await pair();
  const { client } = p.desk;
  const bucket = client.limit(p.to.host);
  await bucket.pause("1m");
  const response = client.fetch(`${p.from.url}/there`);
  await until(async () => (await bucket.stats()).depth === 1);
  expect(p.from.arrivals).toHaveLength(1);
  expect(p.to.arrivals).toHaveLength(0);
  // The first request is over; only the second one waits.
  await until(async () => (await client.limit(p.from.host).stats()).depth === 0);
  await bucket.resume();
  expect(await (await response).text()).toBe("ok");
  expect(await response).toMatchObject({ url: `${p.to.url}/there`, redirected: true, status: 200 });
});

test("the requests of a chain share the rate of their host with all others", async () => {
  await using p = await pair({ define: (from, to) => ({ [from]: { rate: "1000/s" }, [to]: { rate: "10/s" } }) });
  const began = performance.now();
  await Promise.all([1, 2, 3, 4].map(async (n) => (await p.desk.client.fetch(`${p.from.url}/${n}`)).text()));
  expect(p.to.arrivals).toHaveLength(4);
  // Four slots, 101 ms apart; to each of them a start may be late, but none is early.
  expect((p.to.arrivals[3]?.at ?? 0) - began).toBeGreaterThan(295);
});

test("each of them is in flight until its own response has ended", async () => {
  await using p = await pair({
    define: (from, to) => ({ [from]: { rate: "1000/s", concurrency: 1 }, [to]: { rate: "1000/s", concurrency: 1 } }),
    handler: (_request, response) => void response.write("begin "),
  });
  const { client } = p.desk;
  const response = await client.fetch(p.from.url);
  await until(async () => (await client.limit(p.from.host).stats()).inFlight === 0);
  expect((await client.limit(p.to.host).stats()).inFlight).toBe(1);
  await response.body?.cancel();
  await until(async () => (await client.limit(p.to.host).stats()).inFlight === 0);
});

test("credentials stay with their origin", async () => {
  await using p = await pair();
  const secret = { authorization: "Bearer 1", cookie: "a=1", "proxy-authorization": "Basic 1", "x-plain": "kept" };
  await p.desk.client.fetch(p.from.url, { headers: secret });
  expect(p.from.arrivals[0]?.headers).toMatchObject(secret);
  const { headers } = p.to.arrivals[0] ?? {};
  expect(headers).toMatchObject({ "x-plain": "kept", host: p.to.host });
  for (const name of ["authorization", "cookie", "proxy-authorization"]) expect(headers).not.toHaveProperty(name);
});

test("a host that no limit covers gets nothing, and fetch fails with ERR_UNKNOWN_HOST itself", async () => {
  await using p = await pair({ define: (from) => ({ [from]: { rate: "1000/s", concurrency: 1 } }) });
  const { error } = await ending(p.desk.client.fetch(p.from.url));
  expect(error).toMatchObject({ name: "UnknownHostError", code: "ERR_UNKNOWN_HOST", host: p.to.host });
  expect(p.to.arrivals).toHaveLength(0);
  await until(async () => (await p.desk.client.limit(p.from.host).stats()).inFlight === 0);
});

test("a full or blocked bucket behind a redirect refuses with its own error", async () => {
  await using p = await pair();
  await p.desk.client.limit(p.to.host).block("1m", "maintenance");
  const { error } = await ending(p.desk.client.fetch(p.from.url));
  expect(error).toMatchObject({ code: "ERR_BLOCKED", limit: p.to.host });
});

test("aborted while it waits for its second slot, it leaves the queue and nothing is sent", async () => {
  await using p = await pair();
  const { client } = p.desk;
  const bucket = client.limit(p.to.host);
  await bucket.pause("1m");
  const abort = new AbortController();
  const ended = ending(client.fetch(p.from.url, { signal: abort.signal }));
  await until(async () => (await bucket.stats()).depth === 1);
  const reason = new Error("no longer wanted");
  abort.abort(reason);
  expect((await ended).error).toBe(reason);
  await until(async () => (await bucket.stats()).depth === 0);
  await bucket.resume();
  await client.fetch(p.to.url);
  expect(p.to.arrivals).toHaveLength(1);
});

test("closing the client ends that wait, too", async () => {
  await using p = await pair();
  const bucket = p.desk.client.limit(p.to.host);
  await bucket.pause("1m");
  const other = p.desk.open();
  const ended = ending(other.fetch(p.from.url));
  await until(async () => (await bucket.stats()).depth === 1);
  await other.close();
  expect((await ended).error).toMatchObject({ code: "ERR_CLOSED" });
  await until(async () => (await bucket.stats()).depth === 0);
});

test("what a server says with a redirect holds for its own bucket, and so does what the next one says", async () => {
  await using p = await pair({
    moved: { "x-ratelimit-remaining": "0", "x-ratelimit-reset": "30" },
    handler: (_request, response) => void response.writeHead(429, { "retry-after": "40" }).end(),
  });
  const pauses: string[] = [];
  p.desk.client.events.on("pause", ({ limit, reason }) => pauses.push(`${limit}: ${reason}`));
  expect((await p.desk.client.fetch(p.from.url)).status).toBe(429);
  await until(() => pauses.length === 2);
  expect(pauses[0]).toMatch(`${p.from.host}: status 302`);
  expect(pauses[1]).toBe(`${p.to.host}: status 429, Retry-After`);
});

test("a redirect that is not followed takes no slot", async () => {
  await using p = await pair({ define: (from) => ({ [from]: { rate: "1000/s" } }) });
  const { client } = p.desk;
  expect((await client.fetch(p.from.url, { redirect: "manual" })).status).toBe(302);
  const { error } = await ending(client.fetch(p.from.url, { redirect: "error" }));
  expect(error).toMatchObject({ name: "TypeError", message: "fetch failed" });
  expect(p.to.arrivals).toHaveLength(0);
  await until(async () => (await client.limit(p.from.host).stats()).inFlight === 0);
});

test("an endless chain ends as fetch ends it", async () => {
  const upstream: Upstream = await startUpstream({ handler: leading(() => upstream.url) });
  await using _ = upstream;
  await using desk = openDesk({ [upstream.host]: { rate: "1000/s", concurrency: 1 } });
  const { error } = await ending(desk.client.fetch(upstream.url));
  expect(error).toMatchObject({ name: "TypeError", cause: { message: "redirect count exceeded" } });
  expect(upstream.arrivals).toHaveLength(21);
  await until(async () => (await desk.client.limit(upstream.host).stats()).inFlight === 0);
});
