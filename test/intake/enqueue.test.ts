/** Durable calls: what was given is what is sent, and what came back is what is read, in any process. */
import { createHash } from "node:crypto";
import type { IncomingMessage } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, expectTypeOf, test } from "vitest";
import type { CallResult, Ticket } from "spillway";
import { startChild } from "../helpers/child.js";
import { redisUrl } from "../helpers/redis.js";
import { startUpstream } from "../helpers/upstream.js";
import { bounded, until } from "../helpers/wait.js";
import { type Definition, ending, openDesk, stored } from "./desk.js";

const soon = (ticket: Ticket): Promise<CallResult> => bounded(ticket.result(), 5000, `the result of ${ticket.id}`);
const digest = (data: Buffer): string => createHash("sha256").update(data).digest("hex");

async function read(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

test("gives a ticket, knows when the call will start, and gets the result", async () => {
  await using upstream = await startUpstream({
    handler: (_request, response) => response.writeHead(201, { "x-answer": "yes" }).end('{"a":1}'),
  });
  await using desk = openDesk({ [upstream.host]: { rate: "10/s" } });
  const { client } = desk;
  await client.limit(upstream.host).stats();
  await client.limit(upstream.host).pause("500ms");
  const before = Date.now();
  const tickets = [];
  const accepted: number[] = [];
  for (let i = 0; i < 6; i++) {
    tickets.push(await client.enqueue(`${upstream.url}/${i}`));
    accepted.push(Date.now());
  }
  const first = tickets[0]?.expectedAt?.getTime() ?? 0;
  expect(first).toBeGreaterThan(before);
  expect(first).toBeLessThanOrEqual(before + 501);
  // 101 ms apart, from the first one on.
  for (const [i, { id, expectedAt }] of tickets.entries()) {
    expect(id).toMatch(/^[\x21-\x7e]+$/);
    expect(Math.abs((expectedAt?.getTime() ?? 0) - (first + i * 101))).toBeLessThan(2);
  }
  const results = await Promise.all(tickets.map(soon));
  for (const [i, result] of results.entries()) {
    expect(result).toMatchObject({ id: tickets[i]?.id, status: 201, ok: true, attempts: 1, bodyDropped: false });
    expect(result.headers.get("x-answer")).toBe("yes");
    expect(result.json()).toEqual({ a: 1 });
    expect(result.text()).toBe('{"a":1}');
    // The leak is fixed, so the forecast is a lower bound, whatever else this machine does.
    expect((accepted[i] ?? 0) + result.waited + 10).toBeGreaterThan(tickets[i]?.expectedAt?.getTime() ?? 0);
  }
  expect(upstream.arrivals.map(({ url }) => url)).toEqual(["/0", "/1", "/2", "/3", "/4", "/5"]);
  expectTypeOf(results).toEqualTypeOf<CallResult[]>();
});

test("knows of a pause when it says when a call will start", async () => {
  await using upstream = await startUpstream();
  await using desk = openDesk({ [upstream.host]: { rate: "1/s", lateness: 0 } }, { worker: false });
  await desk.client.limit(upstream.host).pause("1h");
  const from = Date.now() + 3_600_000;
  const [first, second] = [await desk.client.enqueue(upstream.url), await desk.client.enqueue(upstream.url)];
  expect(Math.abs((first.expectedAt?.getTime() ?? 0) - from)).toBeLessThan(500);
  expect((second.expectedAt?.getTime() ?? 0) - (first.expectedAt?.getTime() ?? 0)).toBeCloseTo(1000, -1);
});

test("the result can be awaited before and after it is there, twice, and from several clients and processes", async () => {
  const open: (() => void)[] = [];
  await using upstream = await startUpstream({
    handler: (_request, response) => void open.push(() => response.end("the answer")),
  });
  const definition: Definition = { [upstream.host]: { rate: "1000/s" } };
  await using desk = openDesk(definition);
  const { client, prefix } = desk;
  const ticket = await client.enqueue(upstream.url);
  const other = desk.open();

  const args = [JSON.stringify({ redis: redisUrl(), prefix, limits: definition, id: ticket.id })];
  await using child = startChild("intake-result.mjs", { args });
  await child.next("waiting");
  const early = [ticket.result(), ticket.result(), client.ticket(ticket.id).result(), other.ticket(ticket.id).result()];
  await until(() => open.length === 1);
  await sleep(50);
  open[0]?.();
  // Within much less than the interval in which a lost message would be looked up.
  for (const result of await bounded(Promise.all(early), 2000, "results awaited early")) {
    expect(result.text()).toBe("the answer");
  }
  expect(await child.next("result", { timeout: 2000 })).toMatchObject({ text: "the answer", status: 200 });
  expect((await soon(ticket)).text()).toBe("the answer");
  expect((await soon(desk.open().ticket(ticket.id))).text()).toBe("the answer");
  expect(client.ticket(ticket.id).expectedAt).toBeUndefined();
  expect(upstream.arrivals).toHaveLength(1);
});

test("bodies arrive as they were given, and come back as they were sent", async () => {
  await using upstream = await startUpstream({
    handler: async (request, response) => {
      const body = await read(request);
      response.writeHead(200, { "x-type": request.headers["content-type"] ?? "none" }).end(body);
    },
  });
  await using desk = openDesk({ [upstream.host]: { rate: "1000/s", maxRequestBytes: 2_000_000 } });
  const echo = async (body: RequestInit["body"]): Promise<CallResult> =>
    soon(await desk.client.enqueue(upstream.url, { method: "POST", body: body ?? null }));
  // Neither text nor a whole number of base64 groups, and with the separators of the formats it passes through.
  const binary = Buffer.from([...Array.from({ length: 256 }, (_, i) => i), 10, 13, 0, 34, 92]);
  expect((await echo(binary)).body).toEqual(binary);
  expect((await echo(binary.buffer.slice(binary.byteOffset, binary.byteOffset + 5))).body).toEqual(
    binary.subarray(0, 5),
  );
  expect((await echo("ünïcödé ☃ 𝒳 \u0000 \n")).text()).toBe("ünïcödé ☃ 𝒳 \u0000 \n");
  expect((await echo("")).body).toHaveLength(0);
  const large = Buffer.alloc(1_048_576, "\u{1f600} and more");
  large[1000] = 0xff;
  expect(digest((await echo(large)).body)).toBe(digest(large));
  const form = await echo(new URLSearchParams({ a: "1 2" }));
  expect(form.text()).toBe("a=1+2");
  expect(form.headers.get("x-type")).toBe("application/x-www-form-urlencoded;charset=UTF-8");
  const file = new FormData();
  file.set("file", new File(["content"], "name.txt"));
  const multipart = await echo(file);
  expect(multipart.headers.get("x-type")).toMatch(/^multipart\/form-data; boundary=/);
  expect(multipart.text()).toContain('filename="name.txt"');
  expect((await echo(new Blob(["x"], { type: "text/csv" }))).headers.get("x-type")).toBe("text/csv");
  expect((await echo(new Blob(["a", "b"]).stream())).text()).toBe("ab");
  expect((await echo(null)).headers.get("x-type")).toBe("none");
});

test("headers come back with all their values, and in whatever bytes they were sent", async () => {
  await using upstream = await startUpstream({
    handler: (_request, response) => {
      response.setHeader("set-cookie", ["a=1; Path=/", "b=2"]);
      response.setHeader("x-list", ["one", "two"]);
      // As a server does that sends UTF-8.
      response.setHeader("x-utf8", Buffer.from("naïve ☃").toString("latin1"));
      response.end();
    },
  });
  await using desk = openDesk({ [upstream.host]: { rate: "1000/s" } });
  const { headers } = await soon(
    await desk.client.enqueue(upstream.url, {
      headers: [
        ["x-sent", "1"],
        ["x-sent", "2"],
        ["cookie", "c=3"],
      ],
    }),
  );
  expect(upstream.arrivals[0]?.headers).toMatchObject({ "x-sent": "1, 2", cookie: "c=3" });
  expect(headers.getSetCookie()).toEqual(["a=1; Path=/", "b=2"]);
  expect(headers.get("x-list")).toBe("one, two");
  // As fetch reads it.
  expect(headers.get("x-utf8")).toBe((await fetch(upstream.url)).headers.get("x-utf8"));
});

test("methods and statuses without a body, and statuses that are no success, are results", async () => {
  await using upstream = await startUpstream({
    handler: (request, response) => {
      if (request.method === "HEAD") response.writeHead(200, { "content-length": "12345" }).end();
      else response.writeHead(Number(request.url?.slice(1))).end(request.url === "/404" ? "not here" : undefined);
    },
  });
  await using desk = openDesk({ [upstream.host]: { rate: "1000/s" } });
  const call = async (path: string, method = "GET"): Promise<CallResult> =>
    soon(await desk.client.enqueue(`${upstream.url}${path}`, { method }));
  const head = await call("/", "head");
  expect(head).toMatchObject({ status: 200, body: Buffer.alloc(0) });
  expect(head.headers.get("content-length")).toBe("12345");
  expect(await call("/204", "DELETE")).toMatchObject({ status: 204, ok: true, body: Buffer.alloc(0) });
  expect(await call("/304")).toMatchObject({ status: 304, ok: false, body: Buffer.alloc(0) });
  expect(await call("/302")).toMatchObject({ status: 302 });
  const missing = await call("/404");
  expect([missing.status, missing.ok, missing.text()]).toEqual([404, false, "not here"]);
});

test("cancel is true while the call waits, and false when it is sent or has ended", async () => {
  let answer: (() => void) | undefined;
  await using upstream = await startUpstream({
    handler: (_request, response) => void (answer = () => response.end("done")),
  });
  const limit = upstream.host;
  await using desk = openDesk({ [limit]: { rate: "1000/s" } });
  const { client } = desk;
  await client.limit(limit).pause("1m");
  const waiting = await client.enqueue(upstream.url);
  const awaiting = [waiting.result(), client.ticket(waiting.id).result(), desk.open().ticket(waiting.id).result()].map(
    ending,
  );
  await until(async () => (await stored(desk.prefix)).size > 0);
  await sleep(50);
  expect(await waiting.cancel()).toBe(true);
  for (const end of awaiting) {
    expect(await bounded(end, 2000, "the cancelled result")).toMatchObject({ error: { code: "ERR_CANCELLED" } });
  }
  await expect(waiting.result()).rejects.toMatchObject({ code: "ERR_CANCELLED" });
  expect(await waiting.cancel()).toBe(false);
  expect((await client.limit(limit).stats()).depth).toBe(0);
  await client.limit(limit).resume();

  const sent = await client.enqueue(upstream.url);
  await until(() => answer !== undefined);
  expect(await sent.cancel()).toBe(false);
  answer?.();
  expect((await soon(sent)).text()).toBe("done");
  expect(await sent.cancel()).toBe(false);
  expect(upstream.arrivals).toHaveLength(1);
});

test("an id that is none, or of a call that is no longer kept, is unknown", async () => {
  await using upstream = await startUpstream({
    handler: (request, response) => response.writeHead(request.url === "/fail" ? 500 : 200).end("ok"),
  });
  const limit = upstream.host;
  await using desk = openDesk({ [limit]: { rate: "1000/s", keepResults: "300ms", retry: false } });
  const { client } = desk;
  const unknown = expect.objectContaining({ code: "ERR_UNKNOWN_CALL" });
  const none = ["", "x", "no-such-limit~1", "~", limit, undefined, { id: `${limit}~1` }] as string[];
  for (const id of none) expect(() => client.ticket(id)).toThrow(unknown);

  const good = await client.enqueue(upstream.url);
  const never = `${good.id.slice(0, -3)}zzz`;
  await expect(soon(client.ticket(never))).rejects.toEqual(unknown);
  expect(await client.ticket(never).cancel()).toBe(false);

  const bad = await client.enqueue(`${upstream.url}/fail`);
  expect((await soon(good)).status).toBe(200);
  await expect(soon(bad)).rejects.toMatchObject({ code: "ERR_UPSTREAM", status: 500, attempts: 1 });
  await sleep(350);
  await expect(soon(good)).rejects.toEqual(unknown);
  // A failed call is listed, and can be retried, for longer than its result can be read.
  await expect(soon(bad)).rejects.toEqual(unknown);
  expect((await client.limit(limit).failed()).map(({ id }) => id)).toEqual([bad.id]);
});

test("a signal ends the wait for a result, and not the call", async () => {
  await using upstream = await startUpstream();
  const limit = upstream.host;
  await using desk = openDesk({ [limit]: { rate: "1000/s" } });
  await desk.client.limit(limit).pause("1m");
  const ticket = await desk.client.enqueue(upstream.url);
  const controller = new AbortController();
  const results = [1, 2].map(() => ending(ticket.result({ signal: controller.signal })));
  const patient = ticket.result();
  controller.abort(new Error("enough"));
  for (const result of results) expect(await result).toMatchObject({ error: { message: "enough" } });
  await expect(ticket.result({ signal: AbortSignal.timeout(30) })).rejects.toMatchObject({ name: "TimeoutError" });
  await desk.client.limit(limit).resume();
  expect((await bounded(patient, 3000, "the result")).status).toBe(200);
});

test("a body that is too large is refused, and nothing is stored", async () => {
  await using desk = openDesk({ "a.example": { rate: "1000/s", maxRequestBytes: 1000 } }, { worker: false });
  const { client, prefix } = desk;
  await client.limit("a.example").pause("1m");
  const before = await stored(prefix);
  expect(before.size).toBeGreaterThan(0);
  const url = "http://a.example/";
  const post = (body: RequestInit["body"]): Promise<Ticket> =>
    client.enqueue(url, { method: "POST", body: body ?? null });
  const tooLarge = { code: "ERR_BODY_TOO_LARGE", maxBytes: 1000 };
  await expect(post("é".repeat(501))).rejects.toMatchObject({ ...tooLarge, bytes: 1002 });
  await expect(post(new Uint8Array(1001))).rejects.toMatchObject(tooLarge);
  await expect(post(new Blob(["x".repeat(1001)]))).rejects.toMatchObject(tooLarge);
  let pulled = 0;
  let cancelled = false;
  const endless = new ReadableStream<Uint8Array>({
    pull: (controller) => (pulled++, controller.enqueue(new Uint8Array(300))),
    cancel: () => void (cancelled = true),
  });
  await expect(post(endless)).rejects.toMatchObject(tooLarge);
  expect(pulled).toBeLessThan(10);
  expect(cancelled).toBe(true);
  expect(await stored(prefix)).toEqual(before);
  await post("é".repeat(500));
  expect(await stored(prefix)).not.toEqual(before);
});

test("a call that cannot be sent is refused, and nothing is stored", async () => {
  await using desk = openDesk({ "a.example": { rate: "1000/s" } }, { worker: false });
  const { client, prefix } = desk;
  await client.limit("a.example").pause("1m");
  const before = await stored(prefix);
  const invalid = { code: "ERR_INVALID_CALL" };
  const url = "http://a.example/";
  await expect(client.enqueue("/relative")).rejects.toMatchObject(invalid);
  await expect(client.enqueue("ftp://a.example/")).rejects.toMatchObject(invalid);
  await expect(client.enqueue(url, { method: "BAD METHOD" })).rejects.toMatchObject(invalid);
  await expect(client.enqueue(url, { method: "CONNECT" })).rejects.toMatchObject(invalid);
  await expect(client.enqueue(url, { headers: { "bad header": "x" } })).rejects.toMatchObject(invalid);
  await expect(client.enqueue(url, { headers: { good: "bad\nvalue" } })).rejects.toMatchObject(invalid);
  for (const name of ["transfer-encoding", "keep-alive", "Upgrade", "expect"]) {
    const forwarded = client.enqueue(url, { headers: { [name]: "x" } });
    await expect(forwarded).rejects.toMatchObject({ ...invalid, message: expect.stringContaining(name.toLowerCase()) });
  }
  for (const length of ["4", "3, 3", "x"]) {
    const headers = { "content-length": length };
    await expect(client.enqueue(url, { headers })).rejects.toMatchObject(invalid);
    await expect(client.enqueue(url, { method: "PUT", headers, body: "abc" })).rejects.toMatchObject(invalid);
  }
  await expect(client.enqueue(url, { body: "on a GET" })).rejects.toMatchObject(invalid);
  await expect(client.enqueue(url, { method: "head", body: "on a HEAD" })).rejects.toMatchObject(invalid);
  for (const body of [{ a: 1 }, [1]]) {
    // @ts-expect-error would be sent as "[object Object]"
    await expect(client.enqueue(url, { method: "POST", body })).rejects.toThrow("JSON.stringify");
  }
  const used = new ReadableStream();
  used.getReader();
  await expect(client.enqueue(url, { method: "POST", body: used })).rejects.toMatchObject(invalid);
  const broken = new ReadableStream({ pull: (controller) => controller.error(new Error("broken")) });
  await expect(client.enqueue(url, { method: "POST", body: broken })).rejects.toThrow("broken");
  await expect(client.enqueue("http://unknown.example/")).rejects.toMatchObject({
    code: "ERR_UNKNOWN_HOST",
    host: "unknown.example",
  });
  expect(await stored(prefix)).toEqual(before);
});
