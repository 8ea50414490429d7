/** Many durable calls at once. */
import { expect, test } from "vitest";
import { startUpstream } from "../helpers/upstream.js";
import { bounded, until } from "../helpers/wait.js";
import { openDesk, stored } from "./desk.js";

const urls = (base: string, count: number, from = 0): { url: string }[] =>
  Array.from({ length: count }, (_, i) => ({ url: `${base}/${from + i}` }));

test("all are accepted in their order, each with a ticket", async () => {
  await using upstream = await startUpstream();
  // One at a time, so that they arrive in the order in which they start.
  await using desk = openDesk({ [upstream.host]: { rate: "1000/s", lateness: 0, concurrency: 1 } });
  const { client } = desk;
  await client.limit(upstream.host).pause("1m");
  const calls = urls(upstream.url, 40).map(({ url }, i) => ({ url, method: i % 2 === 0 ? "POST" : "PUT" }));
  const { tickets, refused } = await client.enqueueMany(calls);
  expect(refused).toEqual([]);
  expect(new Set(tickets.map(({ id }) => id)).size).toBe(40);
  const expected = tickets.map(({ expectedAt }) => expectedAt?.getTime() ?? 0);
  expect(expected).toEqual([...expected].sort((a, b) => a - b));
  expect((expected.at(-1) ?? 0) - (expected[0] ?? 0)).toBeCloseTo(39, -1);
  expect((await client.limit(upstream.host).stats()).depth).toBe(40);
  await client.limit(upstream.host).resume();
  const results = await bounded(Promise.all(tickets.map((ticket) => ticket.result())), 5000, "all results");
  expect(results.map(({ id }) => id)).toEqual(tickets.map(({ id }) => id));
  expect(upstream.arrivals.map(({ method, url }) => `${method} ${url}`)).toEqual(
    calls.map(({ method }, i) => `${method} /${i}`),
  );
});

test("all or none: what does not fit is refused as a whole, and stores nothing", async () => {
  await using desk = openDesk({ "a.example": { rate: "1/m", capacity: 10 } }, { worker: false });
  const { client } = desk;
  const limit = client.limit("a.example");
  await limit.pause("1m");
  expect((await client.enqueueMany(urls("http://a.example", 6))).tickets).toHaveLength(6);
  const before = await stored(desk.prefix);
  await expect(client.enqueueMany(urls("http://a.example", 5))).rejects.toMatchObject({
    code: "ERR_QUEUE_FULL",
    capacity: 10,
    depth: 6,
  });
  await expect(client.enqueueMany(urls("http://a.example", 11))).rejects.toMatchObject({
    code: "ERR_QUEUE_FULL",
    retryAfter: Infinity,
    message: expect.stringMatching(/never room for so many at once$/),
  });
  // One bad call spoils them all.
  const bad = [...urls("http://a.example", 2), { url: "http://a.example/", body: "on a GET" }];
  await expect(client.enqueueMany(bad)).rejects.toMatchObject({ code: "ERR_INVALID_CALL" });
  expect(await stored(desk.prefix)).toEqual(before);
  expect((await client.enqueueMany(urls("http://a.example", 4))).tickets).toHaveLength(4);
  expect((await limit.stats()).depth).toBe(10);
  expect(await client.enqueueMany([])).toEqual({ tickets: [], refused: [] });
});

test("all must share one bucket, since several cannot be changed in one step", async () => {
  await using desk = openDesk({ "a.example": { rate: "1/m" }, "*.b.example": { rate: "1/m" } }, { worker: false });
  const { client } = desk;
  await client.limit("a.example").pause("1m");
  const before = await stored(desk.prefix);
  for (const other of ["http://x.b.example/", "http://unknown.example/"]) {
    const code = other.includes("unknown") ? "ERR_UNKNOWN_HOST" : "ERR_INVALID_CALL";
    await expect(client.enqueueMany([{ url: "http://a.example/" }, { url: other }])).rejects.toMatchObject({ code });
  }
  // @ts-expect-error no such mode
  await expect(client.enqueueMany([], { mode: "some" })).rejects.toMatchObject({ code: "ERR_INVALID_CALL" });
  expect(await stored(desk.prefix)).toEqual(before);
});

test("as many as fit, of several buckets, in their order", async () => {
  await using upstream = await startUpstream();
  await using other = await startUpstream();
  const rate = "1000/s";
  await using desk = openDesk({
    [upstream.host]: { rate, capacity: 4, lateness: 0, concurrency: 1 },
    [other.host]: { rate, capacity: 100, lateness: 0, concurrency: 1 },
  });
  const { client } = desk;
  for (const host of [upstream.host, other.host]) await client.limit(host).pause("1m");
  const calls = Array.from({ length: 20 }, (_, i) => ({
    url: `${i % 2 === 0 ? upstream.url : other.url}/${i}`,
    method: "POST",
    body: `${i}`,
  }));
  const { tickets, refused } = await client.enqueueMany(calls, { mode: "fit" });
  // Of the even ones the first four; of the odd ones all.
  const accepted = calls.filter((_, i) => i % 2 === 1 || i < 8);
  expect(tickets).toHaveLength(14);
  expect(refused).toEqual(calls.filter((call) => !accepted.includes(call)));
  expect(refused[0]).toBe(calls[8]);
  for (const host of [upstream.host, other.host]) await client.limit(host).resume();
  await bounded(Promise.all(tickets.map((ticket) => ticket.result())), 5000, "all results");
  expect(upstream.arrivals.map(({ url }) => url)).toEqual(["/0", "/2", "/4", "/6"]);
  expect(other.arrivals.map(({ url }) => url)).toEqual(calls.flatMap((_, i) => (i % 2 === 1 ? [`/${i}`] : [])));
  const again = await client.enqueueMany(refused, { mode: "fit" });
  expect(again.tickets).toHaveLength(4);
});

test("as many as fit, by the thousand", async () => {
  await using desk = openDesk({ "a.example": { rate: "1/m", capacity: 1100 } }, { worker: false });
  const { client } = desk;
  await client.limit("a.example").pause("1m");
  const { tickets, refused } = await client.enqueueMany(urls("http://a.example", 1500), { mode: "fit" });
  expect([tickets.length, refused.length]).toEqual([1100, 400]);
  expect(refused[0]).toEqual({ url: "http://a.example/1100" });
  const full = await client.enqueueMany(refused, { mode: "fit" });
  expect([full.tickets.length, full.refused.length]).toEqual([0, 400]);
  expect(await client.limit("a.example").clear()).toBe(1100);
  await until(async () => (await client.limit("a.example").stats()).depth === 0);
  const tooMany = Array.from({ length: 10_001 }, () => ({ url: "http://a.example/" }));
  await expect(client.enqueueMany(tooMany)).rejects.toMatchObject({ code: "ERR_INVALID_CALL" });
});
