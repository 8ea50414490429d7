/** `spillway/undici`: every request of a process is throttled, without a change to its code. */
import { createClient, defineLimits } from "spillway";
import { throttle } from "spillway/undici";
import { once } from "node:events";
import { createServer } from "node:http";
import { type Duplex, Readable } from "node:stream";
import { Agent, Client, type Dispatcher, interceptors, request, upgrade } from "undici";
import { expect, test } from "vitest";
import { startChild } from "../helpers/child.js";
import { redisUrl, uniquePrefix } from "../helpers/redis.js";
import { startUpstream, type Upstream } from "../helpers/upstream.js";
import { until } from "../helpers/wait.js";
import { through } from "./as-without.js";
import { type Desk, ending, openDesk } from "./desk.js";

test("a global dispatcher throttles fetch and request, refuses, and gives back the places of what is aborted", async () => {
  await using child = startChild("undici.mjs", { args: [redisUrl(), uniquePrefix()] });
  const { said } = await child.next<{ said: Record<string, unknown> }>("said", { timeout: 15_000 });
  expect(said).toMatchObject({
    echoed: 6,
    inFlight: 0,
    unknown: ["ERR_UNKNOWN_HOST", "ERR_UNKNOWN_HOST"],
    aborted: "AbortError",
    depth: 0,
    full: 2,
  });
  // Six slots, 50.5 ms apart; to each of them a start may be late, but none is early.
  expect(said["took"]).toBeGreaterThan(245);
  expect(await child.exited).toEqual({ code: 0, signal: null });
});

test("takes only what createClient returned", async () => {
  await using client = createClient({ redis: redisUrl(), limits: defineLimits({ a: { rate: "1/s" } }) });
  expect(() => throttle({ ...client })).toThrow("createClient");
});

interface Setting extends AsyncDisposable {
  readonly upstream: Upstream;
  readonly desk: Desk;
  readonly dispatcher: Dispatcher;
}

async function setting(options: Parameters<typeof startUpstream>[0] = {}): Promise<Setting> {
  const upstream = await startUpstream(options);
  const desk = openDesk({ [upstream.host]: { rate: "1000/s", concurrency: 10 } });
  const agent = new Agent();
  const end = async (): Promise<void> => {
    await agent.destroy();
    await desk[Symbol.asyncDispose]();
    await upstream.close();
  };
  return { upstream, desk, dispatcher: agent.compose(throttle(desk.client)), [Symbol.asyncDispose]: end };
}

test("whatever ends a request that waits frees its place, and nothing is sent", async () => {
  await using s = await setting();
  const { upstream, dispatcher } = s;
  const bucket = s.desk.client.limit(upstream.host);
  await bucket.pause("1m");
  const waits = (): Promise<boolean> => until(async () => (await bucket.stats()).depth === 1);
  const left = (): Promise<boolean> => until(async () => (await bucket.stats()).depth === 0);

  const abort = new AbortController();
  const fetched = ending(fetch(upstream.url, through(dispatcher, { signal: abort.signal })));
  await waits();
  abort.abort();
  expect((await fetched).error).toMatchObject({ name: "AbortError" });
  await left();

  const signal = new AbortController();
  const requested = ending(request(upstream.url, { dispatcher, signal: signal.signal }));
  await waits();
  signal.abort(new Error("no longer wanted"));
  expect((await requested).error).toMatchObject({ message: "no longer wanted" });
  await left();

  const body = new Readable({ read() {} });
  const told: unknown[] = [];
  const handler = { onRequestStart() {}, onResponseError: (_: unknown, error: Error) => told.push(error.message) };
  dispatcher.dispatch({ origin: upstream.url, path: "/", method: "POST", body }, handler);
  await waits();
  body.destroy(new Error("no paper"));
  await left();
  await until(() => told.length === 1);

  const legacy = { onConnect: (stop: () => void) => setTimeout(stop), onError: ({ name }: Error) => told.push(name) };
  dispatcher.dispatch({ origin: upstream.url, path: "/", method: "GET" }, legacy);
  await until(() => told.length === 2);
  await left();
  expect(told).toEqual(["no paper", "AbortError"]);

  await bucket.resume();
  await (await request(upstream.url, { dispatcher })).body.dump();
  expect(upstream.arrivals).toHaveLength(1);
});

test("hears what servers say, to request and to fetch", async () => {
  for (const ask of [
    async (url: string, dispatcher: Dispatcher) => (await request(url, { dispatcher })).body.dump(),
    async (url: string, dispatcher: Dispatcher) => (await fetch(url, through(dispatcher))).text(),
  ]) {
    await using s = await setting({
      handler: (_request, response) => void response.writeHead(429, { "Retry-After": "30" }).end(),
    });
    const paused = once(s.desk.client.events, "pause");
    await ask(s.upstream.url, s.dispatcher);
    expect((await paused)[0]).toMatchObject({ limit: s.upstream.host, reason: "status 429, Retry-After" });
  }
});

test("each request of an interceptor behind it takes a slot of its own", async () => {
  let asked = 0;
  await using s = await setting({
    handler: ({ url }, response) => {
      if (url === "/moved") response.writeHead(302, { location: "/" }).end();
      else response.writeHead(asked++ === 0 ? 503 : 200).end();
    },
  });
  const { redirect, retry } = interceptors;
  const dispatcher = s.dispatcher.compose(
    retry({ minTimeout: 1, retryAfter: false }),
    redirect({ maxRedirections: 2 }),
  );
  await (await request(`${s.upstream.url}/moved`, { dispatcher })).body.dump();
  expect(s.upstream.arrivals).toHaveLength(3);
  expect(await s.desk.client.limit(s.upstream.host).usage(60)).toMatchObject({ sent: 3 });
});

test("an interceptor that tries again does not do so with what was refused", async () => {
  await using s = await setting();
  let asked = 0;
  const retry = interceptors.retry({
    retry: (error, _context, done) => {
      asked++;
      done(error);
    },
  });
  const dispatcher = s.dispatcher.compose(retry);
  await s.desk.client.limit(s.upstream.host).block("1m");
  const { error } = await ending(request(s.upstream.url, { dispatcher }));
  expect(error).toMatchObject({ code: "ERR_BLOCKED" });
  expect(asked).toBe(0);
});

test("a connection that was upgraded is in flight until it is closed, for handlers of undici 6 and 7", async () => {
  const server = createServer().on("upgrade", (_request, socket) => {
    socket.write("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n");
    socket.pipe(socket);
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  const address = server.address();
  const host = `127.0.0.1:${typeof address === "object" ? address?.port : 0}`;
  const origin = `http://${host}`;
  await using desk = openDesk({ [host]: { rate: "1000/s", concurrency: 10 } });
  const agent = new Agent();
  const ways: (() => Promise<Duplex>)[] = [
    async () => {
      const dispatcher = agent.compose(throttle(desk.client));
      return (await upgrade(origin, { dispatcher, protocol: "echo" })).socket;
    },
    () =>
      new Promise((resolve, reject) => {
        // As undici 6 composes: the handler comes as it is.
        const dispatch = throttle(desk.client)((options, handler) => agent.dispatch(options, handler));
        const handler = {
          onConnect() {},
          onUpgrade: (_status: number, _headers: unknown, socket: Duplex) => resolve(socket),
          onError: reject,
        };
        dispatch({ origin, path: "/", method: "GET", upgrade: "echo" }, handler);
      }),
  ];
  for (const connect of ways) {
    const socket = await connect();
    expect((await desk.client.limit(host).stats()).inFlight).toBe(1);
    socket.end();
    socket.resume();
    await until(async () => (await desk.client.limit(host).stats()).inFlight === 0);
  }
  await agent.destroy();
  server.close();
});

test("client.fetch through a dispatcher of the same client takes one slot, and the next one where that tries again", async () => {
  let asked = 0;
  await using upstream = await startUpstream({
    handler: (_request, response) => void response.writeHead(asked++ === 1 ? 429 : 200).end(),
  });
  await using desk = openDesk({ [upstream.host]: { rate: "1000/s", concurrency: 1, maxWait: "5s" } });
  const agent = new Agent();
  const dispatcher = agent.compose(throttle(desk.client));
  const twice = dispatcher.compose(throttle(desk.client));
  await (await desk.client.fetch(upstream.url, through(twice))).text();
  expect(await desk.client.limit(upstream.host).usage(60)).toMatchObject({ sent: 1 });

  // The first flight is over when the second one is asked for, and what ended it has been heard.
  const retrying = dispatcher.compose(interceptors.retry({ minTimeout: 1, retryAfter: false }));
  await (await desk.client.fetch(upstream.url, through(retrying))).text();
  expect(upstream.arrivals).toHaveLength(3);
  expect(await desk.client.limit(upstream.host).usage(60)).toMatchObject({ sent: 3, throttled: 1 });
  await agent.destroy();
});

test("goes by where a request is sent, not by how its path may be read", async () => {
  await using s = await setting();
  const { dispatcher, upstream } = s;
  const { statusCode, body } = await dispatcher.request({
    origin: upstream.url,
    path: "//other.example/x",
    method: "GET",
  });
  await body.dump();
  expect(statusCode).toBe(200);
  expect(upstream.arrivals[0]?.url).toBe("//other.example/x");
});

test("a request without origin is refused: only an Agent says where it sends", async () => {
  await using s = await setting();
  const single = new Client(s.upstream.url);
  const throttled = single.compose(throttle(s.desk.client));
  const { error } = await ending(throttled.request({ path: "/", method: "GET" }));
  expect(error).toMatchObject({ code: "ERR_INVALID_CALL" });
  const { statusCode, body } = await throttled.request({ origin: s.upstream.url, path: "/", method: "GET" });
  await body.dump();
  expect(statusCode).toBe(200);
  await single.close();
});
