/** `run`: any function waits its turn. */
import { expect, expectTypeOf, test } from "vitest";
import { createClient, defineLimits } from "spillway";
import { redisUrl, uniquePrefix } from "../helpers/redis.js";
import { until } from "../helpers/wait.js";
import { ending, name, openDesk } from "./desk.js";

test("returns what the function returns, and throws what it throws", async () => {
  const limit = name();
  await using desk = openDesk({ [limit]: { rate: "1000/s" } });
  const { client } = desk;
  const value = { some: "object" };
  expect(await client.run(limit, async () => value)).toBe(value);
  expect(await client.run(limit, () => value)).toBe(value);
  expect(await client.run(limit, () => undefined)).toBeUndefined();
  const error = new Error("mine");
  await expect(client.run(limit, () => Promise.reject(error))).rejects.toBe(error);
  const thrown = client.run(limit, () => {
    throw error;
  });
  await expect(thrown).rejects.toBe(error);
});

test("runs one after the other in the order of the calls", async () => {
  const limit = name();
  // A lateness of 0 gives no slot up: after a hiccup of this process they would run in the order of new slots.
  await using desk = openDesk({ [limit]: { rate: "200/s", lateness: 0 } });
  const order: number[] = [];
  await Promise.all(Array.from({ length: 20 }, (_, i) => desk.client.run(limit, () => order.push(i))));
  expect(order).toEqual(Array.from({ length: 20 }, (_, i) => i));
});

test("passes the signal on to the function", async () => {
  const limit = name();
  await using desk = openDesk({ [limit]: { rate: "1000/s" } });
  const controller = new AbortController();
  const seen = await desk.client.run(limit, ({ signal }) => signal, { signal: controller.signal });
  expect(seen).toBe(controller.signal);
  expect(await desk.client.run(limit, ({ signal }) => signal)).toBeUndefined();
  // Once it runs, ending is its own affair.
  const running = desk.client.run(
    limit,
    ({ signal }) => new Promise((resolve) => signal?.addEventListener("abort", () => resolve("ended by itself"))),
    { signal: controller.signal },
  );
  setTimeout(() => controller.abort(), 30);
  expect(await running).toBe("ended by itself");
});

test("has a bucket for each key, and for each host of a wildcard", async () => {
  const [keyed, domain] = [name(), `${name()}.example`];
  await using desk = openDesk({
    [keyed]: { rate: "1/m", key: () => "unused" },
    [`*.${domain}`]: { rate: "1/m" },
  });
  const { client } = desk;
  // Within a minute each bucket lets one through: whoever shared one would wait.
  expect(await client.run(keyed, () => 1, { key: "a" })).toBe(1);
  expect(await client.run(keyed, () => 2, { key: "b" })).toBe(2);
  expect(await client.run(`shop1.${domain}`, () => 3)).toBe(3);
  expect(await client.run(`*.${domain}`, () => 4, { key: `shop2.${domain}` })).toBe(4);
  const waiting = [
    ending(client.run(keyed, () => 5, { key: "a", signal: AbortSignal.timeout(300) })),
    ending(client.run(`*.${domain}`, () => 6, { key: `shop1.${domain}`, signal: AbortSignal.timeout(300) })),
    ending(client.run(`shop2.${domain}`, () => 7, { signal: AbortSignal.timeout(300) })),
  ];
  await until(async () => (await client.limit(keyed, "a").stats()).waiting === 1);
  expect((await client.limit(keyed, "b").stats()).waiting).toBe(0);
  await until(async () => (await client.limit(`shop1.${domain}`).stats()).waiting === 1);
  expect((await client.limit(`*.${domain}`, `shop2.${domain}`).stats()).bucket).toContain("shop2");
  for (const end of waiting) expect(await end).toMatchObject({ error: { name: "TimeoutError" } });
  await expect(client.run(keyed, () => 8)).rejects.toMatchObject({ code: "ERR_INVALID_CALL" });
  await expect(client.run(keyed, () => 8, { key: "" })).rejects.toMatchObject({ code: "ERR_INVALID_CALL" });
  await expect(client.run(`*.${domain}`, () => 8)).rejects.toMatchObject({ code: "ERR_INVALID_CALL" });
  await expect(client.run("unknown", () => 8)).rejects.toMatchObject({ code: "ERR_UNKNOWN_HOST" });
});

test("knows the names of its limits at compile time", async () => {
  const limits = defineLimits({ billing: { rate: "1000/s" }, "*.shops.example": { rate: "1000/s" } });
  await using client = createClient({ redis: redisUrl(), prefix: uniquePrefix(), limits, worker: true });
  expectTypeOf(await client.run("billing", async () => 5)).toEqualTypeOf<number>();
  expectTypeOf(await client.run("a.shops.example", () => "x")).toEqualTypeOf<string>();
  // @ts-expect-error no such limit
  await expect(client.run("biling", () => 1)).rejects.toMatchObject({ code: "ERR_UNKNOWN_HOST" });
  // @ts-expect-error a wildcard does not cover the host itself
  expect(() => client.limit("shops.example")).toThrow(expect.objectContaining({ code: "ERR_UNKNOWN_HOST" }));
  // @ts-expect-error a misspelt option
  await expect(client.run("billing", () => 1, { keys: "a" })).rejects.toMatchObject({ code: "ERR_INVALID_CALL" });
});

test("what is no function takes no slot, and what is no response is the error of whoever reports it", async () => {
  const limit = name();
  await using desk = openDesk({ [limit]: { rate: "1000/s" } });
  const { client } = desk;
  const invalid = { code: "ERR_INVALID_CALL" };
  // @ts-expect-error no function
  await expect(client.run(limit, {})).rejects.toMatchObject(invalid);
  expect(await client.limit(limit).usage(60)).toMatchObject({ sent: 0 });
  // @ts-expect-error a plain object of headers
  const plain = client.run(limit, ({ report }) => report({ status: 429, headers: { "retry-after": "2" } }));
  await expect(plain).rejects.toMatchObject(invalid);
  // @ts-expect-error nothing
  await expect(client.run(limit, ({ report }) => report())).rejects.toMatchObject(invalid);
  const headers = { get: (header: string) => (header === "retry-after" ? "60" : null) };
  await client.run(limit, ({ report }) => report({ status: 429, headers }));
  await until(async () => (await client.limit(limit).stats()).paused !== undefined);
});
