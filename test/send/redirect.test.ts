/** Durable calls and redirects: as fetch follows them, each request in a slot of the host that it goes to. */
import type { LimitOptions } from "spillway";
import { expect, test } from "vitest";
import { type Definition, type Desk, ending, openDesk, openPair, type Pair } from "../intake/desk.js";
import { type Arrival, type Handler, startUpstream, type Upstream } from "../helpers/upstream.js";
import { until } from "../helpers/wait.js";
import { look } from "./nodes.js";

interface Options {
  readonly define?: (from: string, to: string) => Definition;
  readonly handler?: Handler;
  readonly worker?: boolean;
}

/** `/<status>/…` of `from` leads with that status to the same path of `to`; `/here/<status>/…` to `/<status>/…` of itself. */
async function pair({ define, handler, worker = true }: Options = {}): Promise<Pair> {
  const to = await startUpstream({ bodies: true, ...(handler && { handler }) });
  const from: Upstream = await startUpstream({
    bodies: true,
    handler: ({ url = "" }, response) => {
      const [, first, second] = url.split("/");
      const location = first === "here" ? url.slice("/here".length) : to.url + url;
      response.writeHead(Number(first === "here" ? second : first), { location }).end("moved");
    },
  });
  return openPair({ from, to }, define, { worker });
}

test("a redirect waits for a slot of the host that it leads to", async () => {
  await using p = await pair();
  const { client } = p.desk;
  await client.limit(p.to.host).pause("1m");
  const ticket = await client.enqueue(`${p.from.url}/302/there`);
  await until(() => p.from.arrivals.length === 1);
  // Another call to that host is next in its queue; both wait at the same gate.
  const other = await client.enqueue(`${p.to.url}/other`);
  await until(async () => (await client.limit(p.to.host).stats()).depth >= 1);
  expect(p.to.arrivals).toHaveLength(0);
  await client.limit(p.to.host).resume();
  const result = await ticket.result();
  expect(result).toMatchObject({ status: 200, attempts: 1 });
  expect(result.text()).toBe("ok");
  expect((await other.result()).status).toBe(200);
  expect(p.to.arrivals.map(({ url }) => url).toSorted()).toEqual(["/302/there", "/other"]);
});

test("in the bucket of that host it does not pass for a call of the same id", async () => {
  await using p = await pair();
  const { client } = p.desk;
  await client.limit(p.to.host).pause("1m");
  await client.enqueue(`${p.from.url}/302`, { id: "order-1" });
  await using redis = look();
  const key = `${p.desk.prefix}:{${p.to.host.replace(":", "%3A")}}:later`;
  const [held] = await until(async () => {
    const members = await redis.zrange(key, 0, "-1");
    return members.length > 0 && members;
  });
  expect(held).not.toMatch(/^=order-1@/);
});

test("chains keep the rate of the host that they lead to", async () => {
  await using p = await pair({ define: (from, to) => ({ [from]: { rate: "1000/s" }, [to]: { rate: "10/s" } }) });
  const began = performance.now();
  const tickets = await Promise.all([1, 2, 3, 4].map((n) => p.desk.client.enqueue(`${p.from.url}/302/${n}`)));
  for (const ticket of tickets) expect((await ticket.result()).status).toBe(200);
  // Four slots, 101 ms apart; to each of them a start may be late, but none is early.
  expect((p.to.arrivals[3]?.at ?? 0) - began).toBeGreaterThan(295);
});

test("a request weighs at each host what its limit says, of a durable call as of fetch", async () => {
  const rate = { limit: 20, per: "1s", counts: "cost" } as const;
  await using p = await pair({
    define: (from, to) => ({ [from]: { rate: "1000/s" }, [to]: { rate, cost: ({ url }) => url.pathname.length } }),
  });
  const { client } = p.desk;
  const url = `${p.from.url}/302/x`;
  // What a call weighs by its own word, it weighs where it was meant.
  const terms = { cost: 1000, maxWait: "3s" } as const;
  for (const send of [
    async () => (await client.fetch(url)).text(),
    async () => (await client.fetch(url, terms)).text(),
    async () => (await client.enqueue(url)).result(),
    async () => (await client.enqueue(url, terms)).result(),
  ]) {
    const before = p.to.arrivals.length;
    await Promise.all([send(), send(), send()]);
    const ats = p.to.arrivals.slice(before).map(({ at }) => at);
    // 303 ms each: 6 of 20 in a second. With a weight of 1 it would be 101 ms for all of them.
    expect((ats[2] ?? 0) - (ats[0] ?? 0)).toBeGreaterThan(400);
  }
});

test("a bucket that nobody has used takes them as well", async () => {
  await using p = await pair({ define: (from) => ({ [from]: { rate: "1000/s" }, "*": { rate: "1000/s" } }) });
  expect((await (await p.desk.client.enqueue(`${p.from.url}/302`)).result()).status).toBe(200);
});

test("methods and bodies change as in fetch", async () => {
  await using p = await pair();
  const { client } = p.desk;
  const follow = async (status: number, method: string): Promise<Pick<Arrival, "method" | "body" | "headers">> => {
    const body = method === "POST" || method === "PUT" ? { body: "körper" } : {};
    const headers = { "content-language": "de", "x-plain": "kept" };
    const ticket = await client.enqueue(`${p.from.url}/${status}`, { method, headers, ...body });
    expect((await ticket.result()).status).toBe(200);
    const seen = p.to.arrivals.at(-1) as Arrival;
    // The same as what fetch itself does.
    await fetch(`${p.from.url}/${status}`, { method, headers, ...body });
    const asFetch = p.to.arrivals.at(-1) as Arrival;
    for (const name of ["content-type", "content-language", "content-length", "x-plain"]) {
      expect([status, method, name, seen.headers[name]]).toEqual([status, method, name, asFetch.headers[name]]);
    }
    expect([status, seen.method, seen.body]).toEqual([status, asFetch.method, asFetch.body]);
    return seen;
  };
  for (const status of [301, 302, 303, 307, 308]) {
    for (const method of ["POST", "PUT", "HEAD", "GET", "DELETE"]) await follow(status, method);
  }
  expect(await follow(303, "PUT")).toMatchObject({ method: "GET", body: "" });
  expect(await follow(302, "POST")).toMatchObject({ method: "GET", body: "" });
  expect(await follow(307, "POST")).toMatchObject({ method: "POST", body: "körper" });
});

test("a body that is no text is sent again as it was", async () => {
  const lengths: number[] = [];
  await using p = await pair();
  const bytes = Uint8Array.from({ length: 256 }, (_, i) => i);
  const ticket = await p.desk.client.enqueue(`${p.from.url}/308`, { method: "POST", body: bytes });
  expect((await ticket.result()).status).toBe(200);
  lengths.push(
    Number(p.from.arrivals[0]?.headers["content-length"]),
    Number(p.to.arrivals[0]?.headers["content-length"]),
  );
  expect(lengths).toEqual([256, 256]);
  expect(p.to.arrivals[0]?.body).toBe(p.from.arrivals[0]?.body);
});

const SECRETS = { authorization: "Bearer 1", cookie: "a=1", "proxy-authorization": "Basic 1" };

test("credentials, and what the limit adds, stay with their origin; no other server gets what its limit adds", async () => {
  const adding = (name: string): LimitOptions => ({ rate: "1000/s", headers: ({ url }) => ({ [name]: url.pathname }) });
  await using p = await pair({ define: (from, to) => ({ [from]: adding("x-from"), [to]: adding("x-to") }) });
  const headers = { ...SECRETS, "x-plain": "kept" };
  const ticket = await p.desk.client.enqueue(`${p.from.url}/here/302/a`, { headers });
  expect((await ticket.result()).status).toBe(200);
  const [first, second] = p.from.arrivals.map((arrival) => arrival.headers);
  expect(first).toMatchObject({ ...headers, "x-from": "/here/302/a" });
  expect(second).toMatchObject({ ...headers, "x-from": "/302/a" });
  const last = p.to.arrivals[0]?.headers;
  expect(last).toMatchObject({ "x-plain": "kept", host: p.to.host });
  for (const name of [...Object.keys(SECRETS), "x-from", "x-to"]) expect(last).not.toHaveProperty(name);
});

test("a limit that covers both origins adds nothing at the second one", async () => {
  const limit = { rate: "1000/s", headers: () => ({ "x-key": "secret" }) } as const;
  await using p = await pair({ define: () => ({ "127.0.0.1": limit }) });
  expect((await (await p.desk.client.enqueue(`${p.from.url}/302`)).result()).status).toBe(200);
  expect(p.from.arrivals[0]?.headers).toMatchObject({ "x-key": "secret" });
  expect(p.to.arrivals[0]?.headers).not.toHaveProperty("x-key");
});

test("a host that no limit covers gets nothing, and the call ends with ERR_UNKNOWN_HOST", async () => {
  await using p = await pair({ define: (from) => ({ [from]: { rate: "1000/s" } }) });
  const ticket = await p.desk.client.enqueue(`${p.from.url}/302`);
  const { error } = await ending(ticket.result());
  expect(error).toMatchObject({ name: "UnknownHostError", code: "ERR_UNKNOWN_HOST", host: p.to.host });
  expect(p.to.arrivals).toHaveLength(0);
  expect(p.from.arrivals).toHaveLength(1);
  expect(await p.desk.client.limit(p.from.host).failed()).toMatchObject([{ id: ticket.id }]);
});

test.each(["key", "cost"])(
  "where the %s of the limit that it leads to fails, so does the call, once",
  async (option) => {
    const broken = (): never => {
      throw new Error("out of order");
    };
    await using p = await pair({
      define: (from, to) => ({ [from]: { rate: "1000/s" }, [to]: { rate: "1000/s", [option]: broken } }),
    });
    const ticket = await p.desk.client.enqueue(`${p.from.url}/302`);
    const message = `The \`${option}\` function of the limit failed: out of order`;
    await expect(ticket.result()).rejects.toMatchObject({ code: "ERR_INVALID_CALL", message });
    expect(p.from.arrivals).toHaveLength(1);
  },
);

/** A server that leads to what the path says, and a client of it. */
async function leading(to: (path: string) => string): Promise<{ upstream: Upstream; desk: Desk } & AsyncDisposable> {
  const upstream = await startUpstream({
    handler: ({ method, url = "" }, response) => {
      if (url === "/form" && method === "GET") response.end("thanks");
      else response.writeHead(url === "/form" ? 303 : 302, { location: to(url) }).end();
    },
  });
  const desk = openDesk({ [upstream.host]: { rate: "1000/s" } });
  const end = async (): Promise<void> => {
    await desk[Symbol.asyncDispose]();
    await upstream.close();
  };
  return { upstream, desk, [Symbol.asyncDispose]: end };
}

test("a chain that does not end is given up after 20 redirects, without further attempts", async () => {
  await using here = await leading((path) => path);
  const { error } = await ending((await here.desk.client.enqueue(here.upstream.url)).result());
  expect(error).toMatchObject({ code: "ERR_UPSTREAM", status: 302, attempts: 1 });
  expect(here.upstream.arrivals).toHaveLength(21);
});

test("a redirect to the same URL is none: a form leads to its own page", async () => {
  await using here = await leading((path) => path);
  const ticket = await here.desk.client.enqueue(`${here.upstream.url}/form`, { method: "POST", body: "a=1" });
  expect((await ticket.result()).text()).toBe("thanks");
});

test("a redirect to what cannot be asked is an error of the server", async () => {
  for (const location of ["ftp://127.0.0.1/", "http://user:secret@127.0.0.1/", "http://["]) {
    await using here = await leading(() => location);
    const { error } = await ending((await here.desk.client.enqueue(here.upstream.url)).result());
    expect(error).toMatchObject({ code: "ERR_UPSTREAM", status: 302, attempts: 1 });
    expect(String(error)).not.toContain("secret");
  }
});

test("with redirect: manual the redirect is the result, and any other word is refused", async () => {
  await using p = await pair({ define: (from) => ({ [from]: { rate: "1000/s" } }) });
  const result = await (await p.desk.client.enqueue(`${p.from.url}/302`, { redirect: "manual" })).result();
  expect(result).toMatchObject({ status: 302 });
  expect(result.headers.get("location")).toBe(`${p.to.url}/302`);
  const wrong = { redirect: "error" } as object;
  await expect(p.desk.client.enqueue(p.from.url, wrong)).rejects.toMatchObject({ code: "ERR_INVALID_CALL" });
});

test("a 300, a 304 and a redirect to nowhere are results", async () => {
  const upstream = await startUpstream({
    handler: ({ url = "" }, response) =>
      void response.writeHead(Number(url.slice(1)), url === "/302" ? {} : { location: "/elsewhere" }).end(),
  });
  await using _ = upstream;
  await using desk = openDesk({ [upstream.host]: { rate: "1000/s" } });
  for (const status of [300, 302, 304]) {
    expect((await (await desk.client.enqueue(`${upstream.url}/${status}`)).result()).status).toBe(status);
  }
});

test("an attempt is the whole chain: what fails at its end begins anew", async () => {
  let asked = 0;
  const retry = { minBackoff: "10ms" } as const;
  await using p = await pair({
    define: (from, to) => ({ [from]: { rate: "1000/s", retry }, [to]: { rate: "1000/s" } }),
    handler: (_request, response) => void response.writeHead(asked++ === 0 ? 503 : 200).end(),
  });
  const ticket = await p.desk.client.enqueue(`${p.from.url}/302`);
  expect(await ticket.result()).toMatchObject({ status: 200, attempts: 2 });
  expect([p.from.arrivals.length, p.to.arrivals.length]).toEqual([2, 2]);
});

test("what has been answered with a redirect is not sent again for the sake of what follows", async () => {
  await using p = await pair({ handler: (_request, response) => void response.writeHead(503).end() });
  const ticket = await p.desk.client.enqueue(`${p.from.url}/303`, { method: "POST", body: "order" });
  await expect(ticket.result()).rejects.toMatchObject({ code: "ERR_UPSTREAM", status: 503, attempts: 1 });
  expect([p.from.arrivals.length, p.to.arrivals.length]).toEqual([1, 1]);
});

test("where what follows is refused, the call goes on there, and its first request is not repeated", async () => {
  let asked = 0;
  const retry = { minBackoff: "10ms" } as const;
  await using p = await pair({
    define: (from, to) => ({ [from]: { rate: "1000/s", retry }, [to]: { rate: "1000/s" } }),
    handler: (_request, response) => void response.writeHead(asked++ === 0 ? 429 : 200).end(),
  });
  const ticket = await p.desk.client.enqueue(`${p.from.url}/303`, { method: "POST", body: "order" });
  expect(await ticket.result()).toMatchObject({ status: 200 });
  expect(p.from.arrivals.map(({ method }) => method)).toEqual(["POST"]);
  expect(p.to.arrivals.map(({ method }) => method)).toEqual(["GET", "GET"]);
});

test("nor is it delivered again later", async () => {
  const redeliver = { attempts: 3, backoff: "1s" } as const;
  await using p = await pair({
    define: (from, to) => ({ [from]: { rate: "1000/s", redeliver }, [to]: { rate: "1000/s" } }),
    handler: (_request, response) => void response.writeHead(503).end(),
  });
  const ticket = await p.desk.client.enqueue(`${p.from.url}/303`, { method: "POST", body: "order" });
  await expect(ticket.result()).rejects.toMatchObject({ code: "ERR_UPSTREAM", status: 503 });
  expect(p.from.arrivals).toHaveLength(1);
});

test("what a server says holds for its own bucket", async () => {
  await using p = await pair({
    handler: (_request, response) =>
      void response.writeHead(404, { "x-ratelimit-remaining": "0", "x-ratelimit-reset": "30" }).end(),
  });
  const pauses: string[] = [];
  p.desk.client.events.on("pause", ({ limit }) => pauses.push(limit));
  await (await p.desk.client.enqueue(`${p.from.url}/302`)).result();
  expect(pauses).toEqual([p.to.host]);
});

test("a worker that closes while a call waits for its second slot leaves what may be repeated to the next", async () => {
  await using p = await pair({ worker: false });
  const { client } = p.desk;
  await client.limit(p.to.host).pause("1m");
  const worker = p.desk.work();
  const repeatable = await client.enqueue(`${p.from.url}/302`);
  const once = await client.enqueue(`${p.from.url}/307`, { method: "POST", body: "x" });
  await until(() => p.from.arrivals.length === 2);
  await until(async () => (await client.limit(p.from.host).stats()).depth === 0);
  await worker.close();
  await expect(once.result()).rejects.toMatchObject({ code: "ERR_MAYBE_SENT" });
  expect(p.to.arrivals).toHaveLength(0);
  await client.limit(p.to.host).resume();
  p.desk.work();
  expect(await repeatable.result()).toMatchObject({ status: 200, attempts: 1 });
});
