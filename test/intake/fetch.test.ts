/** `client.fetch` is fetch: the same inputs, the same request on the wire, the same Response and errors. */
import { createServer } from "node:net";
import { once } from "node:events";
import { expect, expectTypeOf, onTestFinished, test, vi } from "vitest";
import { Agent, getGlobalDispatcher, MockAgent, setGlobalDispatcher } from "undici";
import type { Client } from "spillway";
import { startChild } from "../helpers/child.js";
import { freePort } from "../helpers/processes.js";
import { type Arrival, startUpstream, type Upstream } from "../helpers/upstream.js";
import { type Desk, openDesk } from "./desk.js";

interface Setting extends AsyncDisposable {
  readonly upstream: Upstream;
  readonly desk: Desk;
  readonly client: Client;
  last(): Arrival;
}

/** A fast limit on a server that keeps what it gets. */
async function setting(limit: object = {}): Promise<Setting> {
  const upstream = await startUpstream({
    bodies: true,
    handler: (request, response) => {
      if (request.url === "/moved") response.writeHead(302, { location: "/there" }).end();
      else response.writeHead(200, { "x-answer": "yes" }).end(`answer to ${request.url}`);
    },
  });
  const desk = openDesk({ [upstream.host]: { rate: "1000/s", ...limit } });
  return {
    upstream,
    desk,
    client: desk.client,
    last: () => upstream.arrivals.at(-1) as Arrival,
    async [Symbol.asyncDispose]() {
      await desk[Symbol.asyncDispose]();
      await upstream.close();
    },
  };
}

test("a Content-Length of one's own is sent once, through any dispatcher", async () => {
  await using here = await setting();
  const agent = new Agent();
  onTestFinished(() => agent.close());
  const init = { method: "POST", body: "abc", headers: { "Content-Length": "3" } };
  // The types of Node's undici and of ours differ.
  const through: object = { dispatcher: agent };
  for (const more of [{}, through]) {
    await (await here.client.fetch(here.upstream.url, { ...init, ...more })).text();
    expect(here.last()).toMatchObject({ body: "abc", headers: { "content-length": "3" } });
  }
  // One that lies is refused, as fetch does.
  const lie = { ...init, headers: { "Content-Length": "4" }, ...through };
  await expect(here.client.fetch(here.upstream.url, lie)).rejects.toThrow("fetch failed");
});

test("importing the library changes nothing about fetch", async () => {
  await using child = startChild("import.mjs");
  expect(await child.next("echo")).toMatchObject({ echo: "abc" });
});

test("takes a string, a URL and a Request, with and without init", async () => {
  await using s = await setting();
  const url = `${s.upstream.url}/a?b=c`;
  expectTypeOf(s.client.fetch).toExtend<typeof globalThis.fetch>();

  await s.client.fetch(url);
  expect(s.last()).toMatchObject({ method: "GET", url: "/a?b=c", body: "" });

  await s.client.fetch(new URL(url), { method: "delete", headers: { "x-a": "1" } });
  expect(s.last()).toMatchObject({ method: "DELETE", headers: { "x-a": "1" } });

  const request = new Request(url, { method: "PUT", headers: { "x-a": "1", "x-b": "2" }, body: "from request" });
  await s.client.fetch(request);
  expect(s.last()).toMatchObject({ method: "PUT", headers: { "x-a": "1", "x-b": "2" }, body: "from request" });
  expect(request.bodyUsed).toBe(true);

  const again = new Request(url, { method: "PUT", headers: { "x-a": "1" }, body: "from request" });
  await s.client.fetch(again, { method: "PATCH", headers: [["x-c", "3"]], body: "from init" });
  expect(s.last()).toMatchObject({ method: "PATCH", headers: { "x-c": "3" }, body: "from init" });
  expect(s.last().headers).not.toHaveProperty("x-a");
});

test("takes an init whose properties are getters, such as another Request", async () => {
  await using s = await setting();
  const init = new Request("http://elsewhere.invalid/", { method: "POST", headers: { "x-a": "1" } });
  await s.client.fetch(`${s.upstream.url}/forwarded`, init);
  expect(s.last()).toMatchObject({ method: "POST", url: "/forwarded", headers: { "x-a": "1" } });
});

test("may take the place of the global fetch", async () => {
  await using s = await setting();
  vi.stubGlobal("fetch", s.client.fetch);
  onTestFinished(() => void vi.unstubAllGlobals());
  expect(await (await fetch(`${s.upstream.url}/once`)).text()).toBe("answer to /once");
  expect(s.upstream.arrivals).toHaveLength(1);
});

test("uses a global fetch that somebody has wrapped, and that may copy its init", async () => {
  const real = globalThis.fetch;
  vi.stubGlobal("fetch", (input: string, init?: RequestInit) => real(input, { ...init, credentials: "omit" }));
  onTestFinished(() => void vi.unstubAllGlobals());
  await using s = await setting();
  await s.client.fetch(s.upstream.url, { method: "POST", headers: { "x-a": "1" }, body: "kept" });
  expect(s.last()).toMatchObject({ method: "POST", headers: { "x-a": "1" }, body: "kept" });
  await s.client.fetch(s.upstream.url, new Request(s.upstream.url, { method: "PUT" }));
  expect(s.last()).toMatchObject({ method: "PUT" });
});

test("a global fetch that is no longer one does not hinder opening a client", async () => {
  vi.stubGlobal("fetch", () => undefined);
  onTestFinished(() => void vi.unstubAllGlobals());
  await using desk = openDesk({ "a.example": { rate: "1000/s" } });
  expect(await desk.client.run("a.example", () => 1)).toBe(1);
});

test("sends every kind of body as fetch does", async () => {
  await using s = await setting();
  const send = async (body: RequestInit["body"], more: object = {}): Promise<Arrival> => {
    const response = await s.client.fetch(s.upstream.url, { method: "POST", body: body ?? null, ...more });
    expect(response.status).toBe(200);
    return s.last();
  };
  expect(await send("text é")).toMatchObject({
    body: "text é",
    headers: { "content-type": "text/plain;charset=UTF-8", "content-length": "7" },
  });
  expect(await send(new URLSearchParams({ a: "1 2", b: "é" }))).toMatchObject({
    body: "a=1+2&b=%C3%A9",
    headers: { "content-type": "application/x-www-form-urlencoded;charset=UTF-8" },
  });
  expect(await send(new Blob(["blob"], { type: "text/csv" }))).toMatchObject({
    body: "blob",
    headers: { "content-type": "text/csv" },
  });
  expect((await send(new Uint8Array([104, 105]))).body).toBe("hi");
  const form = new FormData();
  form.set("field", "value");
  form.set("file", new File(["content"], "name.txt"));
  const sent = await send(form);
  expect(sent.headers["content-type"]).toMatch(/^multipart\/form-data; boundary=/);
  expect(sent.body).toContain('name="file"; filename="name.txt"');
  const stream = new ReadableStream<Uint8Array>({
    start(controller) {
      for (const part of ["one ", "two ", "three"]) controller.enqueue(new TextEncoder().encode(part));
      controller.close();
    },
  });
  expect(await send(stream, { duplex: "half" })).toMatchObject({
    body: "one two three",
    headers: { "transfer-encoding": "chunked" },
  });
});

test("returns the global Response, unbound too, and follows redirects", async () => {
  await using s = await setting();
  const { fetch } = s.client;
  const response = await fetch(`${s.upstream.url}/moved`);
  expect(response).toBeInstanceOf(Response);
  expect(response).toMatchObject({
    url: `${s.upstream.url}/there`,
    redirected: true,
    type: "basic",
    status: 200,
    ok: true,
  });
  expect(response.headers.get("x-answer")).toBe("yes");
  expect(await response.text()).toBe("answer to /there");
  const manual = await fetch(`${s.upstream.url}/moved`, { redirect: "manual" });
  expect(manual).toMatchObject({ status: 302, redirected: false });
  await expect(fetch(`${s.upstream.url}/moved`, { redirect: "error" })).rejects.toThrow("fetch failed");
});

test("shows the key function the request as it is sent", async () => {
  const seen: unknown[] = [];
  await using s = await setting({
    key: ({ url, method, headers }: { url: URL; method: string; headers: Headers }) => {
      seen.push([method, url.pathname, headers.get("x-tenant")]);
      return headers.get("x-tenant") ?? "none";
    },
  });
  await s.client.fetch(`${s.upstream.url}/a`, { method: "post", headers: { "x-tenant": "t1" } });
  await s.client.fetch(new Request(`${s.upstream.url}/b`, { method: "PUT", headers: { "x-tenant": "t2" } }));
  expect(seen).toEqual([
    ["POST", "/a", "t1"],
    ["PUT", "/b", "t2"],
  ]);
});

test("sends through the dispatcher of its init, with a body that a mock can match", async () => {
  const desk = openDesk({ "mock.example": { rate: "1000/s" } });
  await using _ = desk;
  const mock = new MockAgent();
  mock.disableNetConnect();
  mock
    .get("https://mock.example")
    .intercept({ path: "/here", method: "POST", body: "expected" })
    .reply(201, "mocked", { headers: { "x-mock": "1" } });
  const init: RequestInit = { method: "POST", body: "expected" };
  const response = await desk.client.fetch("https://mock.example/here", Object.assign(init, { dispatcher: mock }));
  expect(response.status).toBe(201);
  expect(response.headers.get("x-mock")).toBe("1");
  expect(await response.text()).toBe("mocked");
  mock.assertNoPendingInterceptors();
  await mock.close();
});

test("sends through the global dispatcher, also one that is set later", async () => {
  await using s = await setting();
  const before = getGlobalDispatcher();
  onTestFinished(() => setGlobalDispatcher(before));

  let seen = 0;
  const agent = new Agent().compose((dispatch) => (options, handler) => {
    seen++;
    return dispatch(options, handler);
  });
  setGlobalDispatcher(agent);
  expect(await (await s.client.fetch(`${s.upstream.url}/agent`)).text()).toBe("answer to /agent");
  expect(seen).toBe(1);

  const mock = new MockAgent();
  mock.disableNetConnect();
  mock.get(s.upstream.url).intercept({ path: "/mocked" }).reply(200, "from the mock");
  setGlobalDispatcher(mock);
  expect(await (await s.client.fetch(`${s.upstream.url}/mocked`)).text()).toBe("from the mock");
  setGlobalDispatcher(before);
  await Promise.all([agent.close(), mock.close()]);
});

test("passes on what fetch itself throws", async () => {
  const port = await freePort();
  const host = `127.0.0.1:${port}`;
  await using desk = openDesk({ [host]: { rate: "1000/s", concurrency: 1 } });
  const refused = await desk.client.fetch(`http://${host}/`).catch((error: unknown) => error);
  expect(refused).toBeInstanceOf(TypeError);
  expect(refused).toMatchObject({ message: "fetch failed", cause: { code: "ECONNREFUSED" } });

  const server = createServer((socket) => socket.destroy()).listen(port, "127.0.0.1");
  await once(server, "listening");
  const broken = await desk.client.fetch(`http://${host}/`).catch((error: unknown) => error);
  expect(broken).toBeInstanceOf(TypeError);
  server.close();
  await once(server, "close");

  // Refused by fetch before anything is sent; each must free its only place in flight.
  await expect(desk.client.fetch(`http://${host}/`, { body: "on a GET" })).rejects.toThrow(TypeError);
  await expect(desk.client.fetch(`http://user:secret@${host}/`)).rejects.toThrow(TypeError);
  expect((await desk.client.limit(host).stats()).inFlight).toBe(0);
});

test("refuses a URL that no limit covers, or that is none", async () => {
  await using s = await setting();
  await expect(s.client.fetch("http://unknown.example/")).rejects.toMatchObject({
    code: "ERR_UNKNOWN_HOST",
    host: "unknown.example",
  });
  await expect(s.client.fetch("/relative")).rejects.toMatchObject({ code: "ERR_INVALID_CALL" });
  await expect(s.client.fetch("ftp://unknown.example/")).rejects.toMatchObject({ code: "ERR_INVALID_CALL" });
  expect(s.upstream.arrivals).toHaveLength(0);
});
