/** One call more than the bucket holds. */
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import type { QueueFullError } from "spillway";
import { startChild } from "../helpers/child.js";
import { redisUrl } from "../helpers/redis.js";
import { startUpstream } from "../helpers/upstream.js";
import { bounded, until } from "../helpers/wait.js";
import { ending, name, openDesk } from "./desk.js";

test("reject says what is full, and when there will be room", async () => {
  await using upstream = await startUpstream();
  const limit = upstream.host;
  await using desk = openDesk({ [limit]: { rate: "5/s", capacity: 3 } });
  const { client } = desk;
  await client.run(limit, () => {});
  const waiting = [1, 2, 3].map(() => client.fetch(upstream.url));
  await until(async () => (await client.limit(limit).stats()).depth === 3);
  const refusals = await Promise.all(
    [client.fetch(upstream.url), client.run(limit, () => {}), client.enqueue(upstream.url)].map(ending),
  );
  let room = 0;
  for (const { error } of refusals) {
    expect(error).toMatchObject({ code: "ERR_QUEUE_FULL", limit, capacity: 3, depth: 3 });
    room = (error as QueueFullError).retryAfter;
    expect(room).toBeGreaterThan(0);
    expect(room).toBeLessThanOrEqual(203);
  }
  // A timer may fire up to a millisecond early.
  await sleep(room + 1);
  const ticket = await client.enqueue(upstream.url);
  await bounded(Promise.all(waiting), 3000, "the calls that waited");
  expect((await bounded(ticket.result(), 3000, "the result")).status).toBe(200);
});

test("the time of room knows of a pause, and of a bulk", async () => {
  const limit = "a.example";
  await using desk = openDesk({ [limit]: { rate: "1/s", lateness: 0, capacity: 10 } }, { worker: false });
  const { client } = desk;
  await client.limit(limit).pause("1h");
  await client.enqueueMany(Array.from({ length: 10 }, () => ({ url: "http://a.example/" })));
  const one = (await ending(client.enqueue("http://a.example/"))).error as QueueFullError;
  expect(Math.abs(one.retryAfter - 3_600_000)).toBeLessThan(1000);
  const five = Array.from({ length: 5 }, () => ({ url: "http://a.example/" }));
  const bulk = (await ending(client.enqueueMany(five))).error as QueueFullError;
  expect(Math.abs(bulk.retryAfter - 3_604_000)).toBeLessThan(1000);
});

test("drop-oldest fails the call that waited longest: fetch, run and durable, here and elsewhere", async () => {
  await using upstream = await startUpstream();
  const limit = upstream.host;
  const definition = { [limit]: { rate: "1/m", capacity: 4, overflow: "drop-oldest" } } as const;
  await using desk = openDesk(definition);
  const { client, prefix } = desk;
  const drops: string[] = [];
  client.events.on("drop", ({ why }) => drops.push(why));
  await client.run(limit, () => {});
  const depth = async (): Promise<number> => (await client.limit(limit).stats()).depth;

  const oldest = ending(client.fetch(`${upstream.url}/oldest`));
  await until(async () => (await depth()) === 1);
  const second = ending(client.run(limit, () => "ran"));
  await until(async () => (await depth()) === 2);
  const durable = await client.enqueue(`${upstream.url}/durable`);
  const results = [durable, desk.open().ticket(durable.id)].map((ticket) => ending(ticket.result()));
  const setting = { role: "client", redis: redisUrl(), prefix, limits: definition };
  await using child = startChild("node.mjs", { args: [JSON.stringify(setting)] });
  await child.next("ready");
  child.send(Object.assign({ type: "run" }, { limit, count: 1 }));
  await until(async () => (await depth()) === 4);

  const dropped = { error: { code: "ERR_QUEUE_FULL", limit, capacity: 4 } };
  const newer = [];
  for (const end of [[oldest], [second], results]) {
    newer.push(await client.enqueue(`${upstream.url}/newer`));
    for (const one of end) expect(await bounded(one, 2000, "the dropped call")).toMatchObject(dropped);
    expect(await depth()).toBe(4);
  }
  newer.push(await client.enqueue(`${upstream.url}/newer`));
  expect(await child.next("run-done")).toMatchObject({ ends: { ERR_QUEUE_FULL: 1 } });
  expect(drops).toEqual(["full", "full", "full", "full"]);
  await expect(durable.result()).rejects.toMatchObject({ code: "ERR_QUEUE_FULL" });
  // Those that came last are those that are left.
  for (const ticket of newer) expect(await ticket.cancel()).toBe(true);
  expect(await depth()).toBe(0);
  expect(upstream.arrivals).toHaveLength(0);
});

test("drop-oldest may be switched on while the limit is in use", async () => {
  const limit = "a.example";
  await using desk = openDesk({ [limit]: { rate: "1/m", capacity: 10 } }, { worker: false });
  const { client } = desk;
  await client.limit(limit).pause("1m");
  await client.limit(limit).set({ overflow: "drop-oldest", capacity: 2 });
  const permit = ending(client.run(limit, () => {}));
  await until(async () => (await client.limit(limit).stats()).depth === 1);
  const durable = await client.enqueue("http://a.example/");
  await client.enqueue("http://a.example/");
  await client.enqueue("http://a.example/");
  expect(await bounded(permit, 2000, "the permit")).toMatchObject({ error: { code: "ERR_QUEUE_FULL", limit } });
  await expect(durable.result()).rejects.toMatchObject({ code: "ERR_QUEUE_FULL", limit });
});

test("a bulk that is larger than the bucket drops nobody", async () => {
  const limit = "a.example";
  await using desk = openDesk({ [limit]: { rate: "1/m", capacity: 2, overflow: "drop-oldest" } }, { worker: false });
  const { client } = desk;
  await client.limit(limit).pause("1m");
  const ticket = await client.enqueue("http://a.example/");
  const bulk = (count: number): { url: string }[] =>
    Array.from({ length: count }, () => ({ url: "http://a.example/" }));
  await expect(client.enqueueMany(bulk(3))).rejects.toMatchObject({ code: "ERR_QUEUE_FULL", capacity: 2 });
  expect((await client.limit(limit).stats()).depth).toBe(1);
  expect((await client.enqueueMany(bulk(2))).tickets).toHaveLength(2);
  await expect(ticket.result()).rejects.toMatchObject({ code: "ERR_QUEUE_FULL" });
});

test("reject leaves exactly as many waiting as there are places, however many ask at once", async () => {
  const limit = name();
  await using desk = openDesk({ [limit]: { rate: "1/m", capacity: 20 } });
  const others = [desk.client, desk.open(), desk.open()];
  await desk.client.run(limit, () => {});
  const controller = new AbortController();
  const ends = Array.from({ length: 90 }, (_, i) =>
    ending((others[i % 3] ?? desk.client).run(limit, () => {}, { signal: controller.signal })),
  );
  let refused = 0;
  for (const end of ends)
    void end.then(({ error }) => (refused += (error as QueueFullError).code === "ERR_QUEUE_FULL" ? 1 : 0));
  await until(() => refused === 70, { what: "70 refusals" });
  expect((await desk.client.limit(limit).stats()).depth).toBe(20);
  controller.abort();
  await Promise.all(ends);
  expect(refused).toBe(70);
});
