/** A caller that gives up: before, while it waits, between grant and slot, and while the response comes. */
import { setTimeout as sleep } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import { startUpstream } from "../helpers/upstream.js";
import { bounded, until } from "../helpers/wait.js";
import { ending, name, openDesk, stored } from "./desk.js";

test("a signal that has aborted never reaches Redis", async () => {
  // Nobody listens there: whatever needed Redis would end with ERR_REDIS_UNAVAILABLE.
  await using desk = openDesk({ "api.example": { rate: "1/s" } });
  const offline = desk.open({ redis: { host: "127.0.0.1", port: 1 } });
  const reason = new Error("no longer wanted");
  const signal = AbortSignal.abort(reason);
  await expect(offline.fetch("http://api.example/", { signal })).rejects.toBe(reason);
  await expect(offline.fetch(new Request("http://api.example/", { signal }))).rejects.toThrow("no longer wanted");
  await expect(offline.run("api.example", () => 1, { signal })).rejects.toBe(reason);
  const ticket = offline.ticket("api.example~1");
  await expect(ticket.result({ signal })).rejects.toBe(reason);
});

test("what is no signal is refused by name", async () => {
  await using desk = openDesk({ "api.example": { rate: "1/s" } });
  const { client } = desk;
  const refused = expect.objectContaining({ code: "ERR_INVALID_CALL", message: expect.stringContaining("`signal`") });
  for (const signal of [new AbortController(), {}, "5s"] as never[]) {
    await expect(client.fetch("http://api.example/", { signal })).rejects.toEqual(refused);
    await expect(client.run("api.example", () => 1, { signal })).rejects.toEqual(refused);
    await expect(client.ticket("api.example~1").result({ signal })).rejects.toEqual(refused);
  }
  const { signal } = new AbortController();
  await expect(client.ticket("api.example~1").result(signal as never)).rejects.toMatchObject({
    code: "ERR_INVALID_CALL",
  });
  expect((await client.limit("api.example").usage(60)).sent).toBe(0);
});

test("an init may take the signal of its Request away", async () => {
  await using upstream = await startUpstream();
  await using desk = openDesk({ [upstream.host]: { rate: "1000/s" } });
  const request = new Request(upstream.url, { signal: AbortSignal.abort() });
  expect((await fetch(request.clone(), { signal: null })).status).toBe(200);
  expect((await desk.client.fetch(request, { signal: null })).status).toBe(200);
});

test("aborting while it waits rejects with the reason, frees the place at once, and sends nothing", async () => {
  await using upstream = await startUpstream();
  await using desk = openDesk({ [upstream.host]: { rate: "1/m", capacity: 3 } });
  const { client } = desk;
  const limit = client.limit(upstream.host);
  await client.fetch(upstream.url);

  const controllers = [1, 2, 3].map(() => new AbortController());
  const ends = controllers.map(({ signal }) => ending(client.fetch(upstream.url, { signal })));
  await until(async () => (await limit.stats()).depth === 3, { what: "three calls to wait" });
  await expect(client.run(upstream.host, () => 1)).rejects.toMatchObject({ code: "ERR_QUEUE_FULL" });

  controllers[1]?.abort(new Error("my reason"));
  expect(await bounded(ends[1] as Promise<object>, 1000, "the rejection")).toMatchObject({
    error: { message: "my reason" },
  });
  await until(async () => (await limit.stats()).depth === 2, { timeout: 500, what: "the place to be free" });
  // Room for exactly one more.
  const more = [1, 2].map(() => new AbortController());
  const late = more.map(({ signal }) => ending(client.run(upstream.host, () => 1, { signal })));
  expect(await Promise.race(late)).toMatchObject({ error: { code: "ERR_QUEUE_FULL" } });
  for (const controller of [...controllers, ...more]) controller.abort();
  for (const end of [...ends, ...late]) expect((await end).error).toBeInstanceOf(Error);
  await until(async () => (await limit.stats()).depth === 0, { timeout: 500, what: "all places to be free" });
  expect(upstream.arrivals).toHaveLength(1);
});

test("the body of a call that is given up while it waits is let go as by fetch; that of a refused one is left alone", async () => {
  await using upstream = await startUpstream();
  await using desk = openDesk({ [upstream.host]: { rate: "1/m", capacity: 1 } });
  const { client } = desk;
  await client.fetch(upstream.url);
  const ends: unknown[] = [];
  const open = (): ReadableStream => new ReadableStream({ cancel: (reason) => void ends.push(reason) });
  const reason = new Error("no longer wanted");
  const bounds = { method: "POST", duplex: "half" } as const;
  const waits = async (): Promise<boolean> => (await client.limit(upstream.host).stats()).depth === 1;
  const giveUp = async (send: (init: object) => Promise<unknown>): Promise<void> => {
    const controller = new AbortController();
    const sent = ending(send({ ...bounds, signal: controller.signal }));
    await until(waits);
    controller.abort(reason);
    expect((await sent).error).toBe(reason);
  };
  await giveUp((init) => client.fetch(upstream.url, { ...init, body: open() }));
  const request = new Request(upstream.url, { ...bounds, body: open() });
  await giveUp((init) => client.fetch(request, init));
  await until(() => ends.length === 2);
  expect(ends).toEqual([reason, reason]);

  const waiting = ending(client.run(upstream.host, () => 1, { maxWait: "1m" }));
  await until(waits);
  const body = open();
  await expect(client.fetch(upstream.url, { ...bounds, body })).rejects.toMatchObject({ code: "ERR_QUEUE_FULL" });
  expect([ends.length, body.locked]).toEqual([2, false]);
  await client.limit(upstream.host).clear();
  await waiting;
});

test("a timeout signal ends the wait with its TimeoutError", async () => {
  await using upstream = await startUpstream();
  await using desk = openDesk({ [upstream.host]: { rate: "1/m" } });
  await desk.client.fetch(upstream.url);
  const waiting = desk.client.fetch(upstream.url, { signal: AbortSignal.timeout(60) });
  await expect(waiting).rejects.toMatchObject({ name: "TimeoutError" });
});

test("aborting between grant and slot gives the slot back", async () => {
  const limit = name();
  // Slots so near that the second call is granted at once, for a slot that has still to come.
  await using desk = openDesk({ [limit]: { rate: { limit: 1, per: "20ms" }, lateness: 0 } });
  const { client } = desk;
  let given = 0;
  for (let round = 0; round < 10; round++) {
    await client.run(limit, () => {});
    const controller = new AbortController();
    let started = false;
    const second = ending(client.run(limit, () => (started = true), { signal: controller.signal }));
    // A reserved slot counts in the depth until it comes.
    let { depth, waiting } = await client.limit(limit).stats();
    for (let look = 0; look < 5 && depth === 0; look++) ({ depth, waiting } = await client.limit(limit).stats());
    controller.abort(new Error("gave up"));
    const end = await second;
    if (started || depth !== 1 || waiting !== 0) continue;
    given++;
    expect(end).toMatchObject({ error: { message: "gave up" } });
    await until(async () => (await client.limit(limit).stats()).depth === 0, { what: "the place to be free" });
  }
  expect(given).toBeGreaterThan(0);
});

test("aborting while the response is awaited or streamed ends it, and frees the place in flight", async () => {
  const closed: string[] = [];
  await using upstream = await startUpstream({
    handler: (request, response) => {
      response.once("close", () => closed.push(request.url ?? ""));
      if (request.url === "/body") response.write("begin");
    },
  });
  await using desk = openDesk({ [upstream.host]: { rate: "1000/s", concurrency: 1 } });
  const { client } = desk;
  const inFlight = async (): Promise<number> => (await client.limit(upstream.host).stats()).inFlight;

  const first = new AbortController();
  const headers = ending(client.fetch(`${upstream.url}/headers`, { signal: first.signal }));
  await until(() => upstream.arrivals.length === 1);
  expect(await inFlight()).toBe(1);
  first.abort(new Error("too slow"));
  expect(await headers).toMatchObject({ error: { message: "too slow" } });
  await until(async () => (await inFlight()) === 0, { timeout: 1000, what: "the place to be free" });

  const second = new AbortController();
  const response = await client.fetch(`${upstream.url}/body`, { signal: second.signal });
  const text = ending(response.text());
  await sleep(20);
  expect(await inFlight()).toBe(1);
  second.abort(new Error("too long"));
  expect(await text).toMatchObject({ error: { message: "too long" } });
  await until(async () => (await inFlight()) === 0, { timeout: 1000, what: "the place to be free" });

  const third = await client.fetch(`${upstream.url}/body`);
  expect(await inFlight()).toBe(1);
  await third.body?.cancel();
  await until(async () => (await inFlight()) === 0, { timeout: 1000, what: "the place to be free" });
  await until(() => closed.length === 3, { what: "all three connections to end" });
});

test("many calls may share one signal", async () => {
  const warnings: Error[] = [];
  const onWarning = (warning: Error): void => void warnings.push(warning);
  process.on("warning", onWarning);
  onTestFinished(() => void process.off("warning", onWarning));
  const limit = name();
  await using desk = openDesk({ [limit]: { rate: "1/m" } });
  await desk.client.run(limit, () => {});
  const controller = new AbortController();
  const { signal } = controller;
  const ends = Array.from({ length: 200 }, () => ending(desk.client.run(limit, () => {}, { signal })));
  await until(async () => (await desk.client.limit(limit).stats()).depth === 200);
  controller.abort(new Error("all of them"));
  for (const end of ends) expect(await end).toMatchObject({ error: { message: "all of them" } });
  await until(async () => (await desk.client.limit(limit).stats()).depth === 0, { timeout: 2000 });
  await sleep(0);
  expect(warnings).toEqual([]);
});

test("nothing of a waiting fetch is stored: no URL, header or body", async () => {
  await using upstream = await startUpstream();
  await using desk = openDesk({ [upstream.host]: { rate: "1/m" } });
  const { client, prefix } = desk;
  await client.fetch(upstream.url);
  const controller = new AbortController();
  const waiting = ending(
    client.fetch(`${upstream.url}/secret-path?token=secret-query`, {
      method: "POST",
      headers: { authorization: "secret-header" },
      body: "secret-body",
      signal: controller.signal,
    }),
  );
  await until(async () => (await client.limit(upstream.host).stats()).waiting === 1);
  const all = [...(await stored(prefix))].flat().join("\n");
  controller.abort();
  await waiting;
  expect(all).toContain("permit");
  expect(all).not.toContain("secret");
});
