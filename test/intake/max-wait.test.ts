/** Nothing waits for ever: `maxWait`, buckets that nobody drains, and callers that die. */
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import { startChild } from "../helpers/child.js";
import { redisUrl } from "../helpers/redis.js";
import { startUpstream, startUpstreamThread } from "../helpers/upstream.js";
import { bounded, until } from "../helpers/wait.js";
import { ending, name, openDesk } from "./desk.js";

test("a permit that waits longer than maxWait fails and frees its place", async () => {
  await using upstream = await startUpstream();
  const limit = upstream.host;
  await using desk = openDesk({ [limit]: { rate: "1/m", maxWait: "250ms", capacity: 2 } });
  const { client } = desk;
  // The wait includes that for the connection, which may take longer on a busy machine.
  await client.limit(limit).stats();
  await client.run(limit, () => {});
  const from = performance.now();
  const ends = [ending(client.fetch(upstream.url)), ending(client.run(limit, () => {}))];
  await until(async () => (await client.limit(limit).stats()).depth === 2);
  for (const end of ends) {
    expect(await end).toMatchObject({ error: { code: "ERR_WAIT_EXCEEDED", limit, maxWait: 250 } });
  }
  const waited = performance.now() - from;
  expect(waited).toBeGreaterThanOrEqual(249);
  expect(waited).toBeLessThan(1500);
  // A worker drains it, so no word of none.
  expect(String((await ends[0])?.error)).not.toContain("worker");
  await until(async () => (await client.limit(limit).stats()).depth === 0, { timeout: 500 });
  expect(upstream.arrivals).toHaveLength(0);
});

test("a bucket that nobody drains is told once, and in the error", async () => {
  const limit = name();
  await using desk = openDesk({ [limit]: { rate: "1/m", maxWait: "200ms" } }, { worker: false });
  const { client } = desk;
  const told: object[] = [];
  client.events.on("unattended", (details) => told.push(details));
  await client.limit(limit).stats();
  await client.run(limit, () => {});
  const ends = [1, 2, 3].map(() => ending(client.run(limit, () => {})));
  await until(async () => (await client.limit(limit).stats()).waiting === 3);
  expect((await client.limit(limit).stats()).attended).toBe(false);
  for (const end of ends) {
    const { error } = await end;
    expect(error).toMatchObject({ code: "ERR_WAIT_EXCEEDED", maxWait: 200 });
    expect((error as Error).message).toContain("no worker drains this bucket");
  }
  expect(told).toEqual([{ limit, bucket: limit }]);
});

test("a client that drains by itself is never unattended, not even while it connects", async () => {
  await using upstream = await startUpstream();
  // The first connection is for commands; the second one, by which workers are seen, takes a while longer.
  const { hostname, port } = new URL(redisUrl());
  const sockets: Socket[] = [];
  let connections = 0;
  const slow = createServer((socket) => {
    const server = connect(Number(port), hostname);
    sockets.push(socket, server);
    for (const one of [socket, server]) one.on("error", () => {});
    const pass = (): void => void socket.pipe(server).pipe(socket);
    if (connections++ === 0) pass();
    else setTimeout(pass, 200);
  });
  await once(slow.listen(0, "127.0.0.1"), "listening");
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    slow.close();
  });
  await using desk = openDesk({ [upstream.host]: { rate: "1000/s" } }, { worker: false });
  const redis = { host: "127.0.0.1", port: (slow.address() as AddressInfo).port };
  const client = desk.open({ redis, worker: true });
  const told: object[] = [];
  client.events.on("unattended", (details) => told.push(details));
  const ticket = await client.enqueue(upstream.url);
  expect((await bounded(ticket.result(), 5000, "the result")).status).toBe(200);
  expect(told).toEqual([]);
  expect(connections).toBeGreaterThan(1);
});

test("a bucket is drained as soon as a worker comes", async () => {
  await using upstream = await startUpstream();
  await using desk = openDesk({ [upstream.host]: { rate: "100/s" } }, { worker: false });
  const limit = desk.client.limit(upstream.host);
  await limit.pause("1m");
  const calls = Promise.all([1, 2, 3].map(() => desk.client.fetch(upstream.url)));
  const ticket = await desk.client.enqueue(upstream.url);
  await until(async () => (await limit.stats()).waiting === 4);
  await limit.resume();
  expect((await limit.stats()).waiting).toBe(4);
  desk.work();
  await bounded(calls, 3000, "the waiting fetches");
  expect((await bounded(ticket.result(), 3000, "the result")).status).toBe(200);
});

test("a durable call that waits longer than maxWait is dropped, and its result says so", async () => {
  await using upstream = await startUpstream();
  const limit = upstream.host;
  await using desk = openDesk({ [limit]: { rate: "100/s", maxWait: "200ms" } }, { worker: false });
  const { client } = desk;
  desk.work();
  await client.limit(limit).pause("1m", "for this test");
  const tickets = [await client.enqueue(upstream.url), await client.enqueue(upstream.url)];
  const elsewhere = desk.open();
  const results = [...tickets, elsewhere.ticket(tickets[0]?.id ?? "")].map((ticket) => ending(ticket.result()));
  for (const result of results) {
    expect(await bounded(result, 4000, "the result")).toMatchObject({
      error: { code: "ERR_WAIT_EXCEEDED", limit, maxWait: 200 },
    });
  }
  expect(await client.limit(limit).stats()).toMatchObject({ depth: 0, waiting: 0 });
  await client.limit(limit).resume();
  expect((await (await client.enqueue(upstream.url)).result()).status).toBe(200);
  expect(upstream.arrivals).toHaveLength(1);
});

test("callers that were killed eat up no slots", async () => {
  await using upstream = await startUpstreamThread();
  const limit = upstream.host;
  // 30 calls ahead are one and a half seconds of this leak.
  await using desk = openDesk({ [limit]: { rate: "20/s" } });
  const { client, prefix } = desk;
  await client.limit(limit).pause("1m");
  const setting = { role: "client", redis: redisUrl(), prefix, limits: { [limit]: { rate: "20/s" } } };
  await using child = startChild("node.mjs", { args: [JSON.stringify(setting)] });
  await child.next("ready");
  child.send(Object.assign({ type: "fetch" }, { url: upstream.url, count: 30, tag: "dead" }));
  await until(async () => (await client.limit(limit).stats()).waiting === 30);
  const ours = [1, 2, 3].map((n) => client.fetch(`${upstream.url}/ours${n}`));
  await until(async () => (await client.limit(limit).stats()).waiting === 33);
  await child.kill();
  const from = performance.now();
  await client.limit(limit).resume();
  await bounded(Promise.all(ours), 5000, "our calls");
  // Three slots 50 ms apart, where 33 would have been.
  expect(performance.now() - from).toBeLessThan(1000);
  const { arrivals } = await upstream.read();
  expect(arrivals.map(({ url }) => url)).toEqual(["/ours1", "/ours2", "/ours3"]);
  expect((await client.limit(limit).stats()).depth).toBe(0);
});

test("a client that closes ends its waits and leaves their places to others", async () => {
  await using upstream = await startUpstream();
  const limit = upstream.host;
  await using desk = openDesk({ [limit]: { rate: "1/m", capacity: 5 } });
  await desk.client.run(limit, () => {});
  const leaving = desk.open();
  const ends = [
    ending(leaving.fetch(upstream.url)),
    ending(leaving.run(limit, () => {})),
    ending(leaving.run(limit, () => {})),
  ];
  const ticket = await leaving.enqueue(upstream.url);
  const result = ending(ticket.result());
  await until(async () => (await desk.client.limit(limit).stats()).depth === 4);
  await bounded(leaving.close(), 2000, "the client to close");
  for (const end of [...ends, result]) expect(await end).toMatchObject({ error: { code: "ERR_CLOSED" } });
  // What is durable stays.
  expect((await desk.client.limit(limit).stats()).depth).toBe(1);
  await sleep(20);
  expect(upstream.arrivals).toHaveLength(0);
});

test("a client that closes while its calls are being accepted leaves no place taken", async () => {
  const limit = name();
  await using desk = openDesk({ [limit]: { rate: "1/m" } });
  await desk.client.run(limit, () => {});
  for (let ticks = 0; ticks < 8; ticks++) {
    const leaving = desk.open();
    await leaving.limit(limit).stats();
    const ends = [1, 2, 3].map(() => ending(leaving.run(limit, () => {})));
    for (let tick = 0; tick < ticks; tick++) await Promise.resolve();
    await leaving.close();
    for (const end of ends) expect(await end).toMatchObject({ error: { code: "ERR_CLOSED" } });
    expect((await desk.client.limit(limit).stats()).depth).toBe(0);
  }
});

test("a client that closes between grant and slot ends with ERR_CLOSED, too", async () => {
  const limit = name();
  await using desk = openDesk({ [limit]: { rate: { limit: 1, per: "20ms" }, lateness: 0 } });
  let early = 0;
  for (let i = 0; i < 10; i++) {
    const leaving = desk.open();
    await leaving.run(limit, () => {});
    const second = ending(leaving.run(limit, () => "ran"));
    await leaving.limit(limit).stats();
    await leaving.close();
    const { value, error } = await second;
    if (value === "ran") continue;
    early++;
    expect(error).toMatchObject({ code: "ERR_CLOSED" });
  }
  expect(early).toBeGreaterThan(0);
});
