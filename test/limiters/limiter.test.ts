import { Redis } from "ioredis";
import { createLimiter, type LimiterOptions, type TakeOptions } from "spillway/limiters";
import { afterAll, describe, expect, test } from "vitest";
import { redisUrl, uniquePrefix } from "../helpers/redis.js";
import { limiterOf } from "./recorded.js";

const redis = new Redis(redisUrl());
afterAll(() => redis.disconnect());
const keysOf = (prefix: string): Promise<string[]> => redis.keys(`${prefix}*`);

const T0 = 1_800_000_000_000;
const at = T0;
const invalidCall = expect.objectContaining({ code: "ERR_INVALID_CALL" });

/** Five calls in a minute, by each algorithm. */
const FIVE: readonly LimiterOptions[] = [
  { algorithm: "leaky-bucket", rate: "5/m", burst: 5 },
  { algorithm: "token-bucket", max: 5, refillTime: "1m" },
  { algorithm: "fixed-window", limit: 5, per: "1m" },
  { algorithm: "sliding-log", limit: 5, per: "1m" },
  { algorithm: "sliding-log", rules: ["5/m", "100/h"] },
  { algorithm: "sliding-window-counter", limit: 5, per: "1m" },
  { algorithm: "sliding-window", limit: 5, per: "1m" },
];
const named = FIVE.map(
  (options) => [`${options.algorithm}${"rules" in options ? " of two rules" : ""}`, options] as const,
);

describe.each(named)("%s", (_name, options) => {
  test("counts calls and their weights, looks, and forgets when it is told to", async () => {
    const limiter = limiterOf(options);
    const first = await limiter.take("k", { at });
    expect(first).toEqual({
      allowed: true,
      remaining: 4,
      retryAfter: 0,
      resetAfter: expect.any(Number),
      blocked: undefined,
    });
    expect(first.resetAfter).toBeGreaterThan(0);
    expect(await limiter.take("k", { at, cost: 3 })).toMatchObject({ allowed: true, remaining: 1 });
    const refused = await limiter.take("k", { at, cost: 2 });
    expect(refused).toMatchObject({ allowed: false, remaining: 1 });
    expect(refused.retryAfter).toBeGreaterThan(0);
    expect(await limiter.peek("k", { at, cost: 2 })).toEqual(refused);
    expect(await limiter.peek("k", { at })).toMatchObject({ allowed: true, remaining: 1 });
    expect(await limiter.take("k", { at, cost: 0 })).toMatchObject({ allowed: true, remaining: 1 });
    expect(await limiter.take("k", { at, cost: 6 })).toMatchObject({ allowed: false, retryAfter: Infinity });
    expect(await limiter.take("other", { at })).toMatchObject({ remaining: 4 });
    await limiter.reset("k");
    expect(await limiter.peek("k", { at })).toMatchObject({ allowed: true, remaining: 5, resetAfter: 0 });
  });

  test("a call after the wait it was told succeeds, one ms before it does not", async () => {
    const limiter = limiterOf(options);
    for (let i = 0; i < 5; i++) await limiter.take("k", { at: at + i });
    const { retryAfter } = await limiter.take("k", { at: at + 10 });
    expect(await limiter.take("k", { at: at + 10 + retryAfter - 1 })).toMatchObject({ allowed: false, retryAfter: 1 });
    expect(await limiter.take("k", { at: at + 10 + retryAfter })).toMatchObject({ allowed: true });
  });

  test("two connections that race take exactly the limit", async () => {
    const prefix = uniquePrefix();
    const { hostname: host, port } = new URL(redisUrl());
    // Options are shared by identity: each object is a connection of its own.
    const create = createLimiter as (redis: object, options: LimiterOptions) => ReturnType<typeof limiterOf>;
    await using a = create({ host, port: Number(port) }, { ...options, prefix });
    await using b = create({ host, port: Number(port) }, { ...options, prefix });
    const takes = Array.from({ length: 60 }, (_, i) => (i % 2 === 0 ? a : b).take("k", { at }));
    expect((await Promise.all(takes)).filter(({ allowed }) => allowed)).toHaveLength(5);
  });

  test("keys go by themselves, and only what is counted makes one", async () => {
    const prefix = uniquePrefix();
    const limiter = limiterOf(options, prefix);
    await limiter.peek("k");
    await limiter.take("k", { cost: 0 });
    await limiter.take("k", { cost: 6 });
    expect(await keysOf(prefix)).toEqual([]);
    await limiter.take("k");
    const [key = "", ...others] = await keysOf(prefix);
    expect(others).toEqual([]);
    const life = await redis.pttl(key);
    expect(life).toBeGreaterThan(0);
    expect(life).toBeLessThanOrEqual("rules" in options ? 3_600_000 : 120_000);
    expect(await limiter.peek("k")).toMatchObject({ remaining: 4 });
    // A replay may be slower than what it replays.
    await limiter.reset("k");
    await limiter.take("k", { at });
    expect(await redis.pttl(key)).toBeGreaterThan(3_600_000);
  });

  test("a time far ahead by mistake does not shut out those who come by the clock of Redis", async () => {
    const limiter = limiterOf(options);
    await limiter.take("k", { at: Date.now() + 86_400_000 });
    const result = await limiter.take("k");
    expect(result).toMatchObject({ allowed: true, remaining: 3 });
    expect(result.resetAfter).toBeLessThanOrEqual("rules" in options ? 3_600_000 : 121_000);
  });

  test("nor those who look before they take", async () => {
    const limiter = limiterOf(options);
    await limiter.take("k", { at: Date.now() + 86_400_000, cost: 5 });
    const { retryAfter } = await limiter.peek("k", { cost: 5 });
    expect(retryAfter).toBeGreaterThan(0);
    expect(retryAfter).toBeLessThanOrEqual(121_000);
  });

  test("an older time lets in no more", async () => {
    const limiter = limiterOf(options);
    for (let i = 0; i < 4; i++) await limiter.take("k", { at });
    expect(await limiter.take("k", { at: at - 10 })).toMatchObject({ allowed: true, remaining: 0 });
    const refused = await limiter.take("k", { at: at - 10 });
    expect(refused).toMatchObject({ allowed: false });
    expect(await limiter.take("k", { at: at - 10 + refused.retryAfter })).toMatchObject({ allowed: true });
  });

  test("a block refuses all calls until it ends or is ended, and they do not count", async () => {
    const prefix = uniquePrefix();
    const limiter = limiterOf(
      { ...options, ...(options.algorithm !== "token-bucket" && { countRefused: true }) },
      prefix,
    );
    await limiter.block("k", "10s", "first", { at });
    await limiter.block("k", "20s", "abuse:\n{of} all", { at });
    const refused = { allowed: false, remaining: 5, retryAfter: 20_000, resetAfter: 0, blocked: "abuse:\n{of} all" };
    expect(await limiter.take("k", { at })).toEqual(refused);
    expect(await limiter.peek("k", { at })).toEqual(refused);
    expect(await limiter.take("other", { at })).toMatchObject({ allowed: true });
    expect(await limiter.take("k", { at: at + 19_999 })).toMatchObject({ allowed: false, retryAfter: 1 });
    expect(await limiter.take("k", { at: at + 20_000 })).toMatchObject({
      allowed: true,
      remaining: 4,
      blocked: undefined,
    });
    expect(await limiter.unblock("k")).toBe(true);
    expect(await limiter.unblock("k")).toBe(false);
    expect(await limiter.take("k", { at })).toMatchObject({ allowed: true, remaining: 3 });
  });

  test.each(named)("what was used under %s is carried over", async (_from, from) => {
    const prefix = uniquePrefix();
    const old = limiterOf(from, prefix);
    for (let i = 0; i < 3; i++) await old.take("k", { at });
    const limiter = limiterOf(options, prefix);
    const same = JSON.stringify(from) === JSON.stringify(options);
    expect(await limiter.migrate("k", from, { at })).toBe(same ? 0 : 3);
    expect(await limiter.migrate("k", from, { at })).toBe(0);
    expect(await limiter.peek("k", { at })).toMatchObject({ remaining: 2 });
    expect(await old.peek("k", { at })).toMatchObject({ remaining: same ? 2 : 5 });
  });

  test("refused calls count where it is asked for, or a token bucket drains", async () => {
    const counts =
      options.algorithm === "token-bucket" ? { ...options, drain: true } : { ...options, countRefused: true };
    const waits = await Promise.all(
      [options, counts].map(async (each) => {
        const limiter = limiterOf(each);
        await limiter.take("k", { at, cost: 4 });
        for (const after of [1000, 2000, 3000]) await limiter.take("k", { at: at + after, cost: 2 });
        return (await limiter.peek("k", { at: at + 3000 })).remaining;
      }),
    );
    expect(waits).toEqual([1, 0]);
  });
});

describe("a token bucket", () => {
  test("that is strict refills for those who stop asking", async () => {
    const limiter = createLimiter(redisUrl(), {
      algorithm: "token-bucket",
      max: 2,
      refillTime: "10s",
      prefix: uniquePrefix(),
    });
    await limiter.take("k", { at, cost: 2, strict: true });
    for (const after of [5000, 9000, 12_000]) {
      expect(await limiter.take("k", { at: at + after, strict: true })).toMatchObject({
        allowed: false,
        retryAfter: 10_000,
      });
    }
    expect(await limiter.peek("k", { at: at + 21_999 })).toMatchObject({ allowed: false, retryAfter: 1 });
    expect(await limiter.take("k", { at: at + 22_000, strict: true })).toMatchObject({ allowed: true, remaining: 1 });
    await limiter.close();
  });

  test("that is strict puts off the refill when it gives the last token, and when it refuses with some left", async () => {
    const rule = { algorithm: "token-bucket", max: 2, refillTime: "10s", refillAmount: 1 } as const;
    const limiter = createLimiter(redisUrl(), { ...rule, prefix: uniquePrefix() });
    const waits = [];
    for (const last of [{ cost: 1 }, { cost: 2 }]) {
      await limiter.reset("k");
      await limiter.take("k", { at });
      await limiter.take("k", { at: at + 5000, strict: true, ...last });
      waits.push((await limiter.peek("k", { at: at + 5000, cost: 2 })).retryAfter);
    }
    // With no token two refills are missing, with one left only one.
    expect(waits).toEqual([20_000, 10_000]);
    await limiter.close();
  });

  test("shrinks and grows by migration, and gives nothing back", async () => {
    const prefix = uniquePrefix();
    const of = (max: number) => ({ algorithm: "token-bucket", max, refillTime: "1m" }) as const;
    await limiterOf(of(10), prefix).take("k", { at, cost: 4 });
    expect(await limiterOf(of(3), prefix).migrate("k", of(10), { at })).toBe(3);
    expect(await limiterOf(of(3), prefix).peek("k", { at })).toMatchObject({ remaining: 0 });
    expect(await limiterOf(of(20), prefix).migrate("k", of(3), { at })).toBe(3);
    expect(await limiterOf(of(20), prefix).peek("k", { at })).toMatchObject({ remaining: 17 });
  });
});

test("what was used with another prefix is carried over where it is named", async () => {
  const [before, prefix] = [uniquePrefix(), uniquePrefix()];
  const rule = { algorithm: "fixed-window", limit: 5, per: "1d" } as const;
  await limiterOf(rule, before).take("{k} é", { at, cost: 3 });
  const limiter = limiterOf(rule, prefix);
  expect(await limiter.migrate("{k} é", { ...rule, prefix: before }, { at })).toBe(3);
  expect(await keysOf(before)).toEqual([]);
  expect(await limiter.peek("{k} é", { at })).toMatchObject({ remaining: 2 });
  await expect(limiter.migrate("k", { ...rule, prefix: "{x}" })).rejects.toMatchObject({ option: "prefix" });
});

describe("a sliding log of several rules", () => {
  const rules = (perDay: number) =>
    ({ algorithm: "sliding-log", rules: ["1/s", { limit: perDay, per: "1d" }] }) as const;

  test("carries over what its longest window holds, and takes over as much", async () => {
    const prefix = uniquePrefix();
    const [old, wider] = [limiterOf(rules(10), prefix), limiterOf(rules(20), prefix)];
    for (let i = 0; i < 8; i++) await old.take("k", { at: at + 1000 * i });
    expect(await wider.migrate("k", rules(10), { at: at + 8000 })).toBe(8);
    expect(await wider.peek("k", { at: at + 8999 })).toMatchObject({ allowed: false, retryAfter: 1 });
    const left = Array.from({ length: 13 }, (_, i) => wider.take("k", { at: at + 9000 + 1000 * i }));
    expect((await Promise.all(left)).filter(({ allowed }) => allowed)).toHaveLength(12);
    const calendar = limiterOf({ algorithm: "fixed-window", limit: 50, per: "1d" }, prefix);
    expect(await calendar.migrate("k", rules(20), { at: at + 30_000 })).toBe(20);
  });
});

describe("blocks", () => {
  test("are listed for all limiters of a prefix, the one that ends first at the head", async () => {
    const prefix = uniquePrefix();
    const [a, b] = [
      limiterOf({ algorithm: "fixed-window", limit: 1, per: "1s" }, prefix),
      limiterOf({ algorithm: "leaky-bucket", rate: "1/s" }, prefix),
    ];
    const before = Date.now();
    await a.block("user:{7}|é", "1h", "late");
    await b.block("user:8", "10m", "");
    await b.block("gone", "10m", "x");
    await a.unblock("gone");
    const blocks = await a.blocks();
    expect(blocks.map(({ key, reason }) => [key, reason])).toEqual([
      ["user:8", ""],
      ["user:{7}|é", "late"],
    ]);
    expect(Math.abs(Number(blocks[1]?.until) - before - 3_600_000)).toBeLessThan(10_000);
    expect(await b.take("user:{7}|é")).toMatchObject({ allowed: false, blocked: "late" });
    expect(await limiterOf({ algorithm: "leaky-bucket", rate: "1/s" }).blocks()).toEqual([]);
  });

  test("that are over are forgotten", async () => {
    const prefix = uniquePrefix();
    const limiter = limiterOf({ algorithm: "leaky-bucket", rate: "1/s" }, prefix);
    await limiter.block("k", 1, "short");
    await expect.poll(() => limiter.blocks()).toEqual([]);
    const list = `${prefix}:limiter:blocks`;
    await redis.zadd(list, 1, "k");
    await limiter.blocks();
    expect(await redis.exists(list)).toBe(0);
    // Nor does the list grow for ever where nobody looks at it.
    await redis.zadd(list, 1, "k");
    await limiter.block("other", "1h", "long");
    expect(await redis.zrange(list, 0, "-1")).toEqual(["other"]);
  });
});

describe("a call", () => {
  test("takes a Date, and ms to the µs", async () => {
    const limiter = limiterOf({ algorithm: "leaky-bucket", rate: { limit: 1000, per: "1s" } });
    await limiter.take("k", { at: new Date(at) });
    expect(await limiter.take("k", { at: at + 0.999 })).toMatchObject({ allowed: false, retryAfter: 1 });
    expect(await limiter.take("k", { at: at + 1 })).toMatchObject({ allowed: true });
  });

  test.each([
    ["an empty key", "", {}],
    ["a key that cannot be stored", "a\ud800", {}],
    ["a negative cost", "k", { cost: -1 }],
    ["a fraction", "k", { cost: 0.5 }],
    ["a cost beyond all limits", "k", { cost: 2e9 }],
    ["no time", "k", { at: Number.NaN }],
    ["an invalid date", "k", { at: new Date("x") }],
    ["a time before 1970", "k", { at: -1 }],
    ["a time in µs", "k", { at: T0 * 1000 }],
    ["strict without tokens", "k", { strict: true }],
    ["a word for strict", "k", { strict: "no" }],
    ["a misspelt option", "k", { costs: 2 }],
    ["its cost in place of the options", "k", 2],
    ["nothing in place of the options", "k", null],
  ])("with %s is refused, and nothing stored", async (_name, key, options) => {
    const prefix = uniquePrefix();
    const limiter = limiterOf({ algorithm: "fixed-window", limit: 5, per: "1m" }, prefix);
    await expect(limiter.take(key, options as TakeOptions)).rejects.toEqual(invalidCall);
    expect(await keysOf(prefix)).toEqual([]);
  });

  test("that is misspelt is told what was meant, whatever it asks for", async () => {
    const limiter = limiterOf({ algorithm: "fixed-window", limit: 5, per: "1m" });
    const options = { a: 1 } as object;
    const rejected = { code: "ERR_INVALID_CALL", message: expect.stringContaining("did you mean `at`?") };
    await expect(limiter.peek("k", options)).rejects.toMatchObject(rejected);
    await expect(limiter.migrate("k", FIVE[0]!, options)).rejects.toMatchObject(rejected);
    await expect(limiter.block("k", "1m", "why", options)).rejects.toMatchObject(rejected);
  });
});
