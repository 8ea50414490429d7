/** The end of a client, and the options of its beginning. */
import { spawn } from "node:child_process";
import { expect, test } from "vitest";
import { createClient, createWorker, defineLimits, SpillwayError } from "spillway";
import { startChild } from "../helpers/child.js";
import { adopt } from "../helpers/processes.js";
import { redisUrl, uniquePrefix } from "../helpers/redis.js";
import { startUpstream } from "../helpers/upstream.js";
import { bounded, until } from "../helpers/wait.js";
import { ending, name, openDesk, stored } from "./desk.js";

test("close may be called often; calls made later fail with ERR_CLOSED", async () => {
  const limit = "a.example";
  await using desk = openDesk({ [limit]: { rate: "1000/s" } });
  const { client } = desk;
  await client.limit(limit).pause("1h");
  const ticket = await client.enqueue("http://a.example/");
  await bounded(Promise.all([client.close(), client.close()]), 5000, "closing twice");
  await client.close();
  const handle = client.limit(limit);
  const calls: Promise<unknown>[] = [
    client.fetch("http://a.example/"),
    client.run(limit, () => 1),
    client.enqueue("http://a.example/"),
    client.enqueueMany([{ url: "http://a.example/" }]),
    ticket.result(),
    client.ticket(ticket.id).result(),
    ticket.cancel(),
    handle.stats(),
    handle.set({ capacity: 5 }),
    handle.pause("1s"),
    handle.clear(),
    handle.failed(),
  ];
  const closed = calls.map(() => ({ error: expect.objectContaining({ code: "ERR_CLOSED", name: "ClosedError" }) }));
  expect(await Promise.all(calls.map(ending))).toEqual(closed);
});

test("a client that is closed at once, or could never connect, closes all the same", async () => {
  const limits = defineLimits({ a: { rate: "1/s" } });
  const early = createClient({ redis: redisUrl(), prefix: uniquePrefix(), limits, worker: true });
  await bounded(early.close(), 3000, "a client without a call to close");
  const lost = createClient({ redis: { host: "127.0.0.1", port: 1 }, prefix: uniquePrefix(), limits, worker: true });
  const call = ending(lost.run("a", () => 1));
  await bounded(lost.close(), 5000, "a client without Redis to close");
  const { error } = await bounded(call, 5000, "its call");
  expect(["ERR_CLOSED", "ERR_REDIS_UNAVAILABLE"]).toContain((error as SpillwayError).code);
  const worker = createWorker({ redis: redisUrl(), prefix: uniquePrefix(), limits });
  await bounded(Promise.all([worker.close(), worker.close()]), 3000, "a worker to close");
});

test("await using closes it at the end of the block", async () => {
  const limit = name();
  const limits = defineLimits({ [limit]: { rate: "1000/s" } });
  let outside;
  {
    await using client = createClient({ redis: redisUrl(), prefix: uniquePrefix(), limits, worker: true });
    await using worker = createWorker({ redis: redisUrl(), prefix: uniquePrefix(), limits });
    expect(worker.events.listenerCount("warning")).toBe(0);
    expect(await client.run(limit, () => 1)).toBe(1);
    outside = client;
  }
  await expect(outside.run(limit, () => 1)).rejects.toMatchObject({ code: "ERR_CLOSED" });
});

const cases = [
  { title: "that only ran a function", use: "run", worker: false, ends: [] },
  { title: "with calls that wait", use: "waiting", worker: false, ends: Array(4).fill("ERR_CLOSED") },
  { title: "with a worker and calls that wait", use: "waiting", worker: true, ends: Array(4).fill("ERR_CLOSED") },
  { title: "that closes before it has connected", use: "idle", worker: true, ends: [] },
  {
    title: "with an embedded Redis and calls that wait",
    use: "waiting",
    worker: true,
    ends: Array(4).fill("ERR_CLOSED"),
    embedded: true,
  },
];
for (const { title, ends, embedded, ...setting } of cases) {
  test(`a process ${title} ends by itself after close`, async () => {
    await using upstream = await startUpstream();
    const redis = embedded === true ? undefined : redisUrl();
    const options = { ...setting, redis, prefix: uniquePrefix(), url: upstream.url, close: 2 };
    const env = { REDIS_URL: "", NODE_ENV: "test" };
    await using child = startChild("intake-close.mjs", { args: [JSON.stringify(options)], env });
    expect(await bounded(child.exited, 8000, `the end of the process, which printed: ${child.output()}`)).toEqual({
      code: 0,
      signal: null,
    });
    expect(child.output()).toContain(JSON.stringify(ends));
    expect(child.output()).toContain("ended by itself");
    expect(upstream.arrivals).toHaveLength(0);
  });
}

test("a worker whose options are wrong opens nothing and stores nothing", async () => {
  const prefix = uniquePrefix();
  const options = [{ concurrency: 0 }, { closeTimeout: "30d" }, { lockDuration: "30d" }, { dispatcher: {} }];
  const args = [JSON.stringify({ redis: redisUrl(), prefix, options })];
  await using child = startChild("wrong-options.mjs", { args });
  const end = await bounded(child.exited, 8000, `the end of the process, which printed: ${child.output()}`);
  expect(end).toEqual({ code: 0, signal: null });
  expect(child.output()).toBe("concurrency\ncloseTimeout\nlockDuration\ndispatcher\n");
  expect([...(await stored(prefix)).keys()]).toEqual([]);
});

test("wrong options are refused by name", () => {
  const limits = defineLimits({ a: { rate: "1/s" } });
  const redis = redisUrl();
  const invalid = (option: string): object => expect.objectContaining({ code: "ERR_INVALID_LIMIT", option });
  // @ts-expect-error a misspelt option
  expect(() => createClient({ redis, limits, prefx: "a" })).toThrow(invalid("createClient.prefx"));
  // @ts-expect-error a misspelt option
  expect(() => createClient({ redis, limits, prefx: "a" })).toThrow("did you mean `prefix`?");
  // @ts-expect-error an option of workers
  expect(() => createClient({ redis, limits, concurrency: 5 })).toThrow(invalid("createClient.concurrency"));
  // @ts-expect-error no limits
  expect(() => createClient({ redis })).toThrow(invalid("limits"));
  // @ts-expect-error limits that were not defined
  expect(() => createClient({ redis, limits: { a: { rate: "1/s" } } })).toThrow(invalid("limits"));
  // @ts-expect-error nothing at all
  expect(() => createClient()).toThrow(invalid("createClient"));
  // @ts-expect-error no truth value
  expect(() => createClient({ redis, limits, worker: "yes" })).toThrow(invalid("worker"));
  // @ts-expect-error no place of a Redis
  expect(() => createClient({ redis: 6379, limits })).toThrow(invalid("redis"));
  // @ts-expect-error options of another library: they would mean this machine
  expect(() => createClient({ redis: { url: "redis://:secret@redis.example" }, limits })).toThrow(
    'Expected `redis` to be the URL itself, got {"url":"…"}',
  );
  for (const prefix of ["", "a{b}", "a b", "{}"]) {
    expect(() => createClient({ redis, limits, prefix })).toThrow(invalid("prefix"));
    expect(() => createWorker({ redis, limits, prefix })).toThrow(invalid("prefix"));
  }
  // @ts-expect-error an option of clients
  expect(() => createWorker({ redis, limits, worker: true })).toThrow(invalid("createWorker.worker"));
  // @ts-expect-error no limits
  expect(() => createWorker({ redis })).toThrow(invalid("limits"));
  expect(() => createWorker({ redis, limits, concurrency: 0 })).toThrow(invalid("concurrency"));
  expect(() => createWorker({ redis, limits, lockDuration: "10ms" })).toThrow(invalid("lockDuration"));
  // @ts-expect-error no duration
  expect(() => createWorker({ redis, limits, closeTimeout: "soon" })).toThrow(invalid("closeTimeout"));
});

test("in production there is no embedded default: the first call says what to set", async () => {
  const script = `
    import { createClient, defineLimits, SpillwayError } from "spillway";
    const client = createClient({ limits: defineLimits({ a: { rate: "1/s" } }), worker: true });
    for (const call of [() => client.run("a", () => 1), () => client.enqueue("http://a/"), () => client.limit("a").stats()]) {
      const error = await call().catch((error) => error);
      console.log(error instanceof SpillwayError, error.code, error.message);
    }
    await client.close();
    console.log("closed");
  `;
  const execArgv = ["--input-type=module", "--eval", script];
  const env = { ...process.env, NODE_ENV: "production", REDIS_URL: "" };
  const child = adopt(spawn(process.execPath, execArgv, { env, cwd: import.meta.dirname }));
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk) => (output += chunk));
  await until(() => child.exitCode !== null && output.includes("closed"), { timeout: 8000, what: "its end" });
  expect(child.exitCode).toBe(0);
  const lines = output.trim().split("\n");
  expect(lines).toHaveLength(4);
  for (const line of lines.slice(0, 3)) expect(line).toMatch(/^true ERR_REDIS_UNAVAILABLE .*`redis`.*REDIS_URL/);
});

test("clients with different prefixes do not see each other", async () => {
  const limit = "a.example";
  await using here = openDesk({ [limit]: { rate: "1/m", capacity: 1 } });
  await using there = openDesk({ [limit]: { rate: "1/m", capacity: 1 } });
  expect(await here.client.run(limit, () => "here")).toBe("here");
  expect(await there.client.run(limit, () => "there")).toBe("there");
  const ticket = await here.client.enqueue("http://a.example/");
  expect((await there.client.limit(limit).stats()).depth).toBe(0);
  await there.client.limit(limit).pause("1h", "there");
  expect((await here.client.limit(limit).stats()).paused).toBeUndefined();
  await expect(there.client.ticket(ticket.id).result()).rejects.toMatchObject({ code: "ERR_UNKNOWN_CALL" });
  expect(await there.client.ticket(ticket.id).cancel()).toBe(false);
  expect(await there.client.limit(limit).clear()).toBe(0);
  // The one prefix begins with the other.
  await using longer = createClient({ redis: redisUrl(), prefix: `${here.prefix}:x`, limits: here.limits });
  expect((await longer.limit(limit).stats()).depth).toBe(0);
  expect(await ticket.cancel()).toBe(true);
});
