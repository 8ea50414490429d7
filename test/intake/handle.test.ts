/** `limit()`: one bucket, looked at and controlled for every process at once. */
import { setTimeout as sleep } from "node:timers/promises";
import { expect, expectTypeOf, test } from "vitest";
import type { BlockedError, BucketStats, FailedCall, LimitHandle } from "spillway";
import { startUpstream } from "../helpers/upstream.js";
import { bounded, until } from "../helpers/wait.js";
import { look } from "../send/nodes.js";
import { ending, name, openDesk } from "./desk.js";

const near = (date: Date | undefined, at: number, within: number): void =>
  expect(Math.abs((date?.getTime() ?? 0) - at)).toBeLessThan(within);

test("stats show the policy, what waits, what is in flight, and when", async () => {
  let answer: (() => void) | undefined;
  await using upstream = await startUpstream({
    handler: (_request, response) => void (answer = () => response.end()),
  });
  const limit = upstream.host;
  await using desk = openDesk({ [limit]: { rate: "6/m", lateness: 0, capacity: 7, concurrency: 3 } });
  const { client } = desk;
  const handle = client.limit(limit);
  const idle = await handle.stats();
  expectTypeOf(idle).toEqualTypeOf<BucketStats>();
  expect(idle).toEqual({
    limit,
    bucket: limit.replace(":", "%3A"),
    depth: 0,
    waiting: 0,
    capacity: 7,
    active: 0,
    inFlight: 0,
    rate: { limit: 6, perMs: 60_000 },
    share: 1,
    learned: [],
    nextSlotAt: expect.any(Date),
    expectedAt: expect.any(Date),
    paused: undefined,
    blocked: undefined,
    attended: true,
    failed: 0,
    redelivering: 0,
    waitsFor: undefined,
  });
  near(idle.nextSlotAt, Date.now(), 500);
  near(idle.expectedAt, Date.now(), 500);

  const durable = await client.enqueue(upstream.url);
  const started = Date.now();
  await until(() => answer !== undefined);
  const controller = new AbortController();
  const permits = [1, 2].map(() => ending(client.run(limit, () => {}, { signal: controller.signal })));
  await until(async () => (await handle.stats()).waiting === 2);
  const busy = await handle.stats();
  expect(busy).toMatchObject({ depth: 2, waiting: 2, active: 1, inFlight: 1, attended: true });
  // Ten seconds to each.
  near(busy.nextSlotAt, started + 10_000, 500);
  near(busy.expectedAt, started + 30_000, 500);
  answer?.();
  await durable.result();
  controller.abort();
  await Promise.all(permits);
  await until(async () => (await handle.stats()).depth === 0);
  expect(await handle.stats()).toMatchObject({ active: 0, inFlight: 0 });
});

test("set changes the rate at once for calls that wait, in every client, and unset returns to what is declared", async () => {
  const limit = name();
  await using desk = openDesk({ [limit]: { rate: "1/h" } });
  const { client } = desk;
  const other = desk.open();
  await client.run(limit, () => {});
  const calls = Promise.all([client.run(limit, () => 1), other.run(limit, () => 2)]);
  await until(async () => (await client.limit(limit).stats()).waiting === 2);
  await other.limit(limit).set({ rate: "50/s" });
  expect(await bounded(calls, 2000, "the calls that waited")).toEqual([1, 2]);
  expect((await client.limit(limit).stats()).rate).toEqual({ limit: 50, perMs: 1000 });
  await client.limit(limit).unset();
  expect((await other.limit(limit).stats()).rate).toEqual({ limit: 1, perMs: 3_600_000 });
  const late = ending(client.run(limit, () => 3, { signal: AbortSignal.timeout(200) }));
  expect(await late).toMatchObject({ error: { name: "TimeoutError" } });
});

test("set changes capacity and concurrency, one beside the other", async () => {
  const limit = name();
  await using desk = openDesk({ [limit]: { rate: "1000/s", capacity: 5 } });
  const { client } = desk;
  const handle = client.limit(limit);
  await handle.set({ concurrency: 1 });
  await handle.set({ capacity: 1 });
  let end = (): void => {};
  const running = client.run(limit, () => new Promise<void>((resolve) => (end = resolve)));
  await until(async () => (await handle.stats()).inFlight === 1);
  const waiting = client.run(limit, () => "ran");
  await until(async () => (await handle.stats()).waiting === 1);
  await expect(client.run(limit, () => {})).rejects.toMatchObject({ code: "ERR_QUEUE_FULL", capacity: 1 });
  await handle.set({ capacity: 2 });
  const also = client.run(limit, () => "ran too");
  await until(async () => (await handle.stats()).waiting === 2);
  end();
  await running;
  expect(await bounded(Promise.all([waiting, also]), 2000, "the calls that waited")).toEqual(["ran", "ran too"]);
});

test("more concurrency reaches the calls that wait for it", async () => {
  const limit = name();
  await using desk = openDesk({ [limit]: { rate: "1000/s", concurrency: 1 } });
  const { client } = desk;
  const ends: (() => void)[] = [];
  const calls = [1, 2, 3].map(() => client.run(limit, () => new Promise<void>((resolve) => ends.push(resolve))));
  await until(async () => ends.length === 1 && (await client.limit(limit).stats()).waiting === 2);
  await client.limit(limit).set({ concurrency: 2 });
  await until(() => ends.length === 2, { what: "two to run" });
  await client.limit(limit).set({ concurrency: Infinity });
  await until(() => ends.length === 3, { what: "all three to run" });
  await client.run(limit, () => {});
  for (const end of ends) end();
  await Promise.all(calls);
  expect(await client.limit(limit).stats()).toMatchObject({ inFlight: 0, waiting: 0 });
});

test("set for a time ends by itself, for calls that wait, too", async () => {
  const limit = name();
  await using desk = openDesk({ [limit]: { rate: "100/s" } });
  const { client } = desk;
  const handle = client.limit(limit);
  await client.run(limit, () => {});
  await handle.set({ rate: "1/h" }, { for: "300ms" });
  expect((await handle.stats()).rate).toEqual({ limit: 1, perMs: 3_600_000 });
  const from = performance.now();
  const waiting = client.run(limit, () => "ran");
  expect(await bounded(waiting, 5000, "the call that waited")).toBe("ran");
  expect(performance.now() - from).toBeGreaterThan(150);
  // Much less than the interval in which workers look around.
  expect(performance.now() - from).toBeLessThan(2000);
  expect((await handle.stats()).rate).toEqual({ limit: 100, perMs: 1000 });
});

test("bad changes are refused by name and change nothing", async () => {
  const limit = name();
  await using desk = openDesk({ [limit]: { rate: "100/s" } });
  const handle = desk.client.limit(limit);
  const before = await handle.stats();
  const refused = async (change: object, option: string): Promise<void> =>
    expect(handle.set(change)).rejects.toMatchObject({ code: "ERR_INVALID_LIMIT", option: `${limit}.${option}` });
  await refused({ rate: "fast" }, "rate");
  await refused({ capacity: 0 }, "capacity");
  await refused({ capcity: 5 }, "capcity");
  await refused({ maxWait: "5s" }, "maxWait");
  await expect(handle.set({ maxWait: "5s" } as object)).rejects.toThrow("it is declared with the limit");
  // @ts-expect-error no duration
  await expect(handle.set({ capacity: 5 }, { for: "a while" })).rejects.toMatchObject({ code: "ERR_INVALID_LIMIT" });
  // @ts-expect-error misspelt: it would be for ever
  await expect(handle.set({ capacity: 5 }, { fro: "1s" })).rejects.toMatchObject({ option: "set.fro" });
  // @ts-expect-error misspelt: it would be all
  await expect(handle.retryFailed({ limits: 1 })).rejects.toMatchObject({ option: "retryFailed.limits" });
  // @ts-expect-error misspelt
  await expect(handle.failed({ max: 1 })).rejects.toMatchObject({ option: "failed.max" });
  // @ts-expect-error no duration
  await expect(handle.pause("soon")).rejects.toMatchObject({ code: "ERR_INVALID_LIMIT", option: "pause" });
  await expect(handle.block("0s")).rejects.toMatchObject({ code: "ERR_INVALID_LIMIT", option: "block" });
  expect(await handle.stats()).toMatchObject({ rate: before.rate, capacity: before.capacity, paused: undefined });
});

test("pause starts nothing and accepts calls; resume lets them go on", async () => {
  const limit = name();
  await using desk = openDesk({ [limit]: { rate: "1000/s" } });
  const { client } = desk;
  const handle = client.limit(limit);
  await handle.pause("10m", "maintenance");
  await desk.open().limit(limit).pause("1s", "shorter");
  const ran: number[] = [];
  const calls = Promise.all([1, 2].map((i) => client.run(limit, () => ran.push(i))));
  await until(async () => (await handle.stats()).waiting === 2);
  const { paused, nextSlotAt, blocked } = await handle.stats();
  expect(paused?.reason).toBe("maintenance");
  near(paused?.until, Date.now() + 600_000, 1000);
  near(nextSlotAt, Date.now() + 600_000, 1000);
  expect(blocked).toBeUndefined();
  await sleep(80);
  expect(ran).toEqual([]);
  await handle.resume();
  await bounded(calls, 2000, "the calls that waited");
  expect((await handle.stats()).paused).toBeUndefined();
  await handle.pause("1h");
  expect((await handle.stats()).paused?.reason).toBe("paused by hand");
});

test("a pause ends by itself", async () => {
  const limit = name();
  await using desk = openDesk({ [limit]: { rate: "1000/s" } });
  const from = performance.now();
  await desk.client.limit(limit).pause("200ms");
  await bounded(
    desk.client.run(limit, () => {}),
    3000,
    "the call",
  );
  expect(performance.now() - from).toBeGreaterThan(195);
});

test("block refuses new calls with the reason, and those that wait go on waiting", async () => {
  const limit = "a.example";
  await using desk = openDesk({ [limit]: { rate: "1000/s" } });
  const { client } = desk;
  const handle = client.limit(limit);
  await handle.pause("1h");
  const waiting = client.run(limit, () => "ran");
  await until(async () => (await handle.stats()).waiting === 1);
  await handle.block("10m", "key revoked");
  const calls = [client.run(limit, () => 1), client.fetch("http://a.example/"), client.enqueue("http://a.example/")];
  for (const { error } of await Promise.all(calls.map(ending))) {
    expect(error).toMatchObject({ code: "ERR_BLOCKED", limit, reason: "key revoked" });
    expect(Math.abs((error as BlockedError).retryAfter - 600_000)).toBeLessThan(1000);
  }
  const { blocked, waiting: still } = await handle.stats();
  expect([blocked?.reason, still]).toEqual(["key revoked", 1]);
  near(blocked?.until, Date.now() + 600_000, 1000);
  await handle.resume();
  await sleep(60);
  expect((await handle.stats()).waiting).toBe(1);
  await handle.unblock();
  expect(await bounded(waiting, 2000, "the call that waited")).toBe("ran");
  expect(await client.run(limit, () => "open")).toBe("open");
  expect((await handle.stats()).blocked).toBeUndefined();
});

test("clear cancels all that wait, here and elsewhere", async () => {
  const limit = "a.example";
  await using desk = openDesk({ [limit]: { rate: "1000/s" } });
  const { client } = desk;
  const other = desk.open();
  await client.limit(limit).pause("1h");
  const permits = [client.run(limit, () => {}), other.run(limit, () => {}), other.fetch("http://a.example/")];
  const ends = permits.map(ending);
  const ticket = await client.enqueue("http://a.example/");
  const results = [ticket.result(), other.ticket(ticket.id).result()].map(ending);
  await until(async () => (await client.limit(limit).stats()).depth === 4);
  expect(await desk.open().limit(limit).clear()).toBe(4);
  for (const end of [...ends, ...results]) {
    expect(await bounded(end, 2000, "the cleared call")).toMatchObject({ error: { code: "ERR_CANCELLED" } });
  }
  await expect(ticket.result()).rejects.toMatchObject({ code: "ERR_CANCELLED" });
  expect((await client.limit(limit).stats()).depth).toBe(0);
  expect(await client.limit(limit).clear()).toBe(0);
});

test("failed calls are listed, the latest first, and can be retried", async () => {
  let status = 500;
  await using upstream = await startUpstream({
    handler: (_request, response) => response.writeHead(status).end("answer"),
  });
  const limit = upstream.host;
  await using desk = openDesk({ [limit]: { rate: "1000/s", retry: false } });
  const { client } = desk;
  const handle: LimitHandle = client.limit(limit);
  expect(await handle.failed()).toEqual([]);
  const tickets = [];
  for (const method of ["POST", "PUT", "DELETE"]) {
    const ticket = await client.enqueue(`${upstream.url}/${method}`, { method });
    await expect(bounded(ticket.result(), 3000, "the failure")).rejects.toMatchObject({ code: "ERR_UPSTREAM" });
    tickets.push(ticket);
    // The list is in order of the millisecond.
    await sleep(2);
  }
  const failed = await handle.failed();
  expectTypeOf(failed).toEqualTypeOf<FailedCall[]>();
  expect(failed.map(({ id }) => id)).toEqual(tickets.map(({ id }) => id).toReversed());
  expect(failed[0]).toEqual({
    id: tickets[2]?.id,
    url: `${upstream.url}/DELETE`,
    method: "DELETE",
    reason: expect.stringContaining("status 500"),
    failedAt: expect.any(Date),
  });
  near(failed[0]?.failedAt, Date.now(), 3000);
  expect(await handle.failed({ limit: 2 })).toEqual(failed.slice(0, 2));
  expect((await handle.stats()).failed).toBe(3);

  status = 200;
  expect(await handle.retryFailed({ limit: 1 })).toBe(1);
  expect((await bounded(client.ticket(tickets[0]?.id ?? "").result(), 3000, "the retried call")).status).toBe(200);
  expect((await handle.stats()).failed).toBe(2);
  expect(await handle.retryFailed()).toBe(2);
  for (const ticket of tickets) expect((await bounded(ticket.result(), 3000, "the result")).text()).toBe("answer");
  expect(upstream.arrivals.map(({ method }) => method).sort()).toEqual(
    ["POST", "PUT", "DELETE", "POST", "PUT", "DELETE"].sort(),
  );
  expect(await handle.retryFailed()).toBe(0);
});

test("a call of another format ends once, says why, and does not hide the others that failed", async () => {
  await using upstream = await startUpstream({ handler: (_request, response) => void response.writeHead(500).end() });
  await using desk = openDesk({ [upstream.host]: { rate: "1000/s", retry: false } });
  const { client, prefix } = desk;
  const handle = client.limit(upstream.host);
  await handle.pause("1h");
  const stored = ['{"v":2,"url":"https://later.example/"}', "no JSON"];
  const odd = await Promise.all(stored.map(() => client.enqueue(`${upstream.url}/odd`)));
  const plain = await client.enqueue(`${upstream.url}/plain`);
  await using redis = look();
  for (const [i, { id }] of odd.entries()) {
    const [bucket, call] = id.split("~");
    await redis.hset(`${prefix}:{${bucket}}:${call}`, "data", stored[i] ?? "");
  }
  await handle.resume();
  for (const ticket of odd) {
    const ended = bounded(ticket.result(), 5000, "the end of a call of another format");
    await expect(ended).rejects.toMatchObject({ code: "ERR_INVALID_CALL" });
  }
  await expect(plain.result()).rejects.toMatchObject({ code: "ERR_UPSTREAM", status: 500 });
  const failed = await handle.failed();
  expect(failed.map(({ url }) => url).toSorted()).toEqual(["", "", `${upstream.url}/plain`]);
  expect(failed.filter(({ url }) => url === "").every(({ reason }) => reason.includes("version 1"))).toBe(true);
  expect(upstream.arrivals.map(({ url }) => url)).toEqual(["/plain"]);
});
