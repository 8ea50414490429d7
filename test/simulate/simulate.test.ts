import { Redis } from "ioredis";
import {
  type Arrival,
  defineLimits,
  InvalidCallError,
  InvalidLimitError,
  simulate,
  type SimulatedCall,
} from "spillway";
import { describe, expect, test } from "vitest";
import { redisUrl, uniquePrefix } from "../helpers/redis.js";
import { at, atOnce, ends, replay } from "./replayed.js";

const DAY = 86_400_000;
const NEW_YEAR = Date.UTC(2026, 0);

describe("calls of one limit", () => {
  test("start as far apart as the rate asks, and those that find no room are refused", async () => {
    const { calls, total, limits, span } = await replay({ rate: "2/s", capacity: 3 }, atOnce(6));
    const full = "ERR_QUEUE_FULL after 0";
    expect(ends(calls)).toEqual([0, 505, 1010, 1515, full, full]);
    expect(calls[3]).toEqual({
      index: 3,
      at: 0,
      limit: "api",
      bucket: "api",
      outcome: "sent",
      startedAt: 1515,
      waited: 1515,
    });
    const expected = {
      offered: 6,
      sent: 4,
      refused: { ERR_QUEUE_FULL: 2 },
      wait: { p50: 505, p95: 1515, p99: 1515, max: 1515 },
      mostWaiting: 3,
    };
    expect(total).toEqual(expected);
    expect(limits).toEqual({
      api: { ...expected, buckets: 1, rate: { limit: 2, perMs: 1000 }, mostInPeriod: 2 },
    });
    expect(span).toBe(1515);
  });

  test("find room at the very moment at which one starts, and not before", async () => {
    const { calls } = await replay({ rate: "1/s", capacity: 1, lateness: 0 }, at(0, 1, 999.999, 1000, 1999, 2000));
    const full = "ERR_QUEUE_FULL after 0";
    expect(ends(calls)).toEqual([0, 1000, full, 2000, full, 3000]);
  });

  test("that waited longest make room with drop-oldest", async () => {
    const options = { rate: "1/s", capacity: 2, overflow: "drop-oldest", lateness: 0 } as const;
    const { calls, total } = await replay(options, at(0, 100, 200, 300, 400, 5000));
    expect(ends(calls)).toEqual([0, "ERR_QUEUE_FULL after 200", "ERR_QUEUE_FULL after 200", 1000, 2000, 5000]);
    expect(total).toMatchObject({ sent: 4, refused: { ERR_QUEUE_FULL: 2 }, mostWaiting: 2 });
  });

  test("give up when their maxWait is over, which frees their place", async () => {
    const options = { rate: "1/h", capacity: 1, maxWait: "10s", lateness: 0 } as const;
    const { calls, span } = await replay(options, at(0, 1000, 10_999, 11_000, 3_595_000));
    const expired = "ERR_WAIT_EXCEEDED after 10000";
    expect(ends(calls)).toEqual([0, expired, "ERR_QUEUE_FULL after 0", expired, 3_600_000]);
    expect(span).toBe(3_600_000);
  });

  test("have a maxWait of their own, and start if their slot comes with its end", async () => {
    const arrivals: Arrival[] = [
      { at: 0 },
      { at: 0, maxWait: "1s" },
      { at: 0, maxWait: 1999 },
      { at: 0, maxWait: 500 },
    ];
    const { calls } = await replay({ rate: "1/s", lateness: 0 }, arrivals);
    expect(ends(calls)).toEqual([0, 1000, "ERR_WAIT_EXCEEDED after 1999", "ERR_WAIT_EXCEEDED after 500"]);
  });

  test("wait no longer than those of fetch do where nothing is declared", async () => {
    const { calls } = await replay({ rate: "1/h", lateness: 0 }, atOnce(2));
    expect(ends(calls)).toEqual([0, "ERR_WAIT_EXCEEDED after 300000"]);
  });

  test("go by their priority", async () => {
    const priorities = ["low", "normal", "low", "normal", "high"] as const;
    const arrivals: Arrival[] = [{ at: 0 }, ...priorities.map((priority) => ({ at: 1, priority }))];
    const { calls } = await replay({ rate: "1/s", lateness: 0 }, arrivals);
    expect(ends(calls)).toEqual([0, 4000, 2000, 5000, 3000, 1000]);
  });

  test("weigh what they cost", async () => {
    const rate = { limit: 10, per: "1s", counts: "cost" } as const;
    const arrivals: Arrival[] = [4, 6, 5, 1].map((cost) => ({ at: 0, cost }));
    const { calls, limits } = await replay({ rate, burst: 10, lateness: 0 }, arrivals);
    expect(ends(calls)).toEqual([0, 0, 500, 600]);
    expect(limits["api"]).toMatchObject({ mostInPeriod: 16, rate: { limit: 10, perMs: 1000 } });
  });

  test("hold a place in flight for their duration", async () => {
    const arrivals: Arrival[] = [2000, 500, 1000, "1s", 0, 0].map((duration) => ({
      at: 0,
      duration: duration as number,
    }));
    const options = { rate: "10/s", concurrency: 2, lateness: 0 } as const;
    const { calls, total } = await replay(options, [...arrivals, { at: 9000 }]);
    expect(ends(calls)).toEqual([0, 100, 600, 1600, 2000, 2100, 9000]);
    expect(total.mostWaiting).toBe(5);
  });

  test("give up in time while all places in flight are taken", async () => {
    const arrivals: Arrival[] = [{ at: 0, duration: "1m" }, { at: 1, maxWait: "2s" }, { at: 2 }];
    const { calls } = await replay({ rate: "10/s", concurrency: 1, lateness: 0 }, arrivals);
    expect(ends(calls)).toEqual([0, "ERR_WAIT_EXCEEDED after 2000", 60_000]);
  });

  test("keep all rules", async () => {
    const rules = ["3/10s", { algorithm: "fixed-window", limit: 4, per: "1m" }] as const;
    const { calls } = await replay({ rate: "10/s", rules: [...rules], lateness: 0 }, at(7000, 7000, 7000, 7000, 7000));
    expect(ends(calls)).toEqual([7000, 7100, 7200, 17_000, 60_000]);
  });

  test("keep all rules, however many wait behind the last arrival", async () => {
    const rules = ["20/m", { algorithm: "token-bucket", max: 20, refillTime: "1m" }] as const;
    const { calls } = await replay({ rate: "1/s", rules: [...rules], maxWait: "1d", lateness: 0 }, atOnce(700));
    expect(ends(calls)).toEqual(Array.from({ length: 700 }, (_, i) => Math.floor(i / 20) * 60_000 + (i % 20) * 1000));
  });

  test("find a burst saved up even on a clock that begins at 0", async () => {
    const { calls } = await replay({ rate: "1/s", burst: 3, lateness: 0 }, [...atOnce(4), ...atOnce(4, 10_000)]);
    expect(ends(calls)).toEqual([0, 0, 0, 1000, 10_000, 10_000, 10_000, 11_000]);
  });
});

test("a million seconds, and queues longer than one script may empty, take moments", async () => {
  const arrivals = Array.from({ length: 5 }, (_, burst) => atOnce(300, burst * 250_000_000)).flat();
  const { calls, span, total } = await replay({ rate: "1/s", lateness: 0 }, arrivals);
  expect(calls.map(({ startedAt }) => startedAt)).toEqual(
    arrivals.map((arrival, i) => Number(arrival.at) + (i % 300) * 1000),
  );
  expect(total).toMatchObject({ sent: 1500, refused: {}, mostWaiting: 299, wait: { p50: 149_000, max: 299_000 } });
  expect(span).toBe(1_000_299_000);
});

test("many buckets are simulated side by side, by host and by key", async () => {
  const limits = defineLimits({
    "*.example.com": { rate: "1/s", lateness: 0 },
    tenants: { rate: "1/m", key: () => "never asked", lateness: 0 },
    "api.example.com/slow": {
      rate: "1/h",
      key: ({ method, headers }) => `${method} ${headers.get("x-tenant")}`,
      lateness: 0,
      maxWait: "2h",
    },
  });
  const slow = { at: 0, url: "https://api.example.com/slow/1", method: "put", headers: { "x-tenant": "7" } };
  const arrivals: Arrival[] = [
    { at: 0, url: "https://a.example.com/" },
    { at: 0, url: new URL("https://a.example.com/") },
    { at: 0, url: "https://b.example.com/" },
    { at: 0, limit: "b.example.com" },
    { at: 0, limit: "tenants", key: "one" },
    { at: 0, limit: "tenants", key: "two" },
    slow,
    slow,
    { ...slow, headers: { "x-tenant": "8" } },
    { at: 0, url: "https://other.example.org/" },
  ];
  const {
    calls,
    total,
    limits: each,
  } = await simulate(limits, arrivals, {
    redis: redisUrl(),
    prefix: uniquePrefix(),
  });
  expect(ends(calls)).toEqual([0, 1000, 0, 1000, 0, 0, 0, 3_600_000, 0, "ERR_UNKNOWN_HOST after 0"]);
  expect(calls.map(({ bucket }) => bucket)).toEqual([
    "*.example.com|a.example.com",
    "*.example.com|a.example.com",
    "*.example.com|b.example.com",
    "*.example.com|b.example.com",
    "tenants|one",
    "tenants|two",
    "api.example.com/slow|PUT 7".replace(" ", "%20"),
    "api.example.com/slow|PUT 7".replace(" ", "%20"),
    "api.example.com/slow|PUT 8".replace(" ", "%20"),
    undefined,
  ]);
  expect(total).toMatchObject({ offered: 10, sent: 9, refused: { ERR_UNKNOWN_HOST: 1 } });
  expect(Object.entries(each).map(([name, { offered, buckets }]) => [name, offered, buckets])).toEqual([
    ["*.example.com", 4, 2],
    ["tenants", 2, 2],
    ["api.example.com/slow", 3, 2],
  ]);
});

test("costs are those of the limit where the call does not say", async () => {
  const limits = defineLimits({
    "api.example.com": {
      rate: { limit: 10, per: "1s", counts: "cost" },
      cost: ({ body = "", method }) => body.length + (method === "PUT" ? 3 : 0),
      burst: 10,
      lateness: 0,
    },
  });
  const call = { at: 0, url: "https://api.example.com/", method: "put", body: "1234567" };
  const options = { redis: redisUrl(), prefix: uniquePrefix() };
  const { calls } = await simulate(limits, [call, { ...call, cost: 2 }, { ...call, body: "1" }], options);
  expect(ends(calls)).toEqual([0, 200, 600]);
});

test("quotas hold for each producer", async () => {
  const limits = defineLimits({
    "api.example.com": {
      rate: "100/s",
      lateness: 0,
      admit: {
        algorithm: "fixed-window",
        limit: 3,
        per: "1m",
        counts: "cost",
        key: ({ headers }) => headers.get("x-from") ?? "nobody",
      },
    },
  });
  const call = (time: number, from: string, cost: number): Arrival => ({
    at: time,
    url: "https://api.example.com/",
    headers: { "x-from": from },
    cost,
  });
  const arrivals: Arrival[] = [
    call(0, "a", 2),
    call(0, "a", 2),
    call(0, "b", 3),
    call(1000, "a", 1),
    { at: 2000, limit: "api.example.com", producer: "b" },
    { at: 60_000, limit: "api.example.com", producer: "b" },
  ];
  const { calls, total } = await simulate(limits, arrivals, { redis: redisUrl(), prefix: uniquePrefix() });
  const refused = "ERR_QUOTA_EXCEEDED after 0";
  expect(ends(calls)).toEqual([0, refused, 10, 1000, refused, 60_000]);
  expect(total.refused).toEqual({ ERR_QUOTA_EXCEEDED: 2 });
});

describe("arrivals", () => {
  test("have their times in ms, as a Date, or in ISO 8601, and come back on the same clock", async () => {
    const arrivals: Arrival[] = [
      { at: NEW_YEAR - 1000 },
      { at: new Date(NEW_YEAR) },
      { at: "2026-01-01T00:00:01Z" },
      { at: "2026-01-01 00:00:02" },
      { at: "2026-01-01T01:00:03.5+01:00" },
      { at: "2026-01-02" },
    ];
    const { calls, span, timeline } = await replay({ rate: "100/s", lateness: 0 }, arrivals);
    const expected = [-1000, 0, 1000, 2000, 3500, DAY].map((ms) => NEW_YEAR + ms);
    expect(calls.map((call) => call.at)).toEqual(expected);
    expect(ends(calls)).toEqual(expected);
    expect(span).toBe(DAY + 1000);
    expect(timeline.from).toBe(NEW_YEAR - 1000);
  });

  test("may come from any iterable, and each is told when its end is known", async () => {
    async function* arrivals() {
      for (let i = 0; i < 10_500; i++) yield { at: i * 50 };
    }
    const told: SimulatedCall[] = [];
    const simulation = await simulate(defineLimits({ api: { rate: "20/s", lateness: 0 } }), arrivals(), {
      redis: redisUrl(),
      prefix: uniquePrefix(),
      onCall: (call) => told.push(call),
    });
    expect(simulation.calls).toEqual([]);
    expect(told.map(({ index, startedAt }) => [index, startedAt])).toEqual(
      Array.from({ length: 10_500 }, (_, i) => [i, i * 50]),
    );
  });

  test("may be none", async () => {
    const nothing = { offered: 0, sent: 0, refused: {}, wait: { p50: 0, p95: 0, p99: 0, max: 0 }, mostWaiting: 0 };
    expect(await replay({ rate: "1/s" }, [])).toMatchObject({ calls: [], total: nothing, limits: {}, span: 0 });
  });

  const bad: readonly [string, unknown, string][] = [
    [
      "a time that is none",
      { at: "soon" },
      'Expected `at` to be milliseconds, a Date, or a time in ISO 8601, got "soon"',
    ],
    ["a date that is none", { at: "2026-13-01" }, "Expected `at`"],
    ["an invalid Date", { at: new Date(Number.NaN) }, "Expected `at`"],
    ["no time", {}, "Expected `at`"],
    ["a time before 0", { at: -1 }, "Expected `at`"],
    ["a time beyond exact µs", { at: 9.1e12 }, "Expected `at`"],
    ["a list", { at: [5] }, "Expected `at`"],
    ["an older one", { at: 999.999 }, "Expected arrivals in the order of their times"],
    ["a URL that is none", { at: 1000, url: "here" }, "Expected an absolute http: or https: URL"],
    ["a cost that is none", { at: 1000, cost: 0 }, "Expected `cost`"],
    ["a priority that is none", { at: 1000, priority: "urgent" }, "Expected `priority`"],
    ["a maxWait that is none", { at: 1000, maxWait: "long" }, "Expected `maxWait`"],
    ["a duration that is none", { at: 1000, duration: "long" }, "Expected `duration`"],
    ["a method that is none", { at: 1000, url: "https://a.example.com/", method: 5 }, "Expected `method` to be a text"],
    ["no object", 1000, "Expected an object"],
  ];
  test.each(bad)("with %s are refused, with their position", async (_name, wrong, message) => {
    const error: unknown = await replay({ rate: "1/s" }, [{ at: 1000 }, wrong as Arrival]).catch(
      (cause: unknown) => cause,
    );
    expect(error).toBeInstanceOf(InvalidCallError);
    expect(String(error)).toContain(`Arrival 2: ${message}`);
  });

  test("need a url or a limit where there are several limits", async () => {
    const limits = defineLimits({ a: { rate: "1/s" }, b: { rate: "1/s" } });
    const simulation = simulate(limits, [{ at: 0 }], { redis: redisUrl(), prefix: uniquePrefix() });
    await expect(simulation).rejects.toThrow("Arrival 1: Expected a `url` or a `limit`");
  });
});

describe("what is left in Redis", () => {
  const keysOf = async (prefix: string): Promise<string[]> => {
    const redis = new Redis(redisUrl());
    try {
      const found: string[] = [];
      for await (const keys of redis.scanStream({ match: `${prefix}*`, count: 1000 }))
        found.push(...(keys as string[]));
      return found;
    } finally {
      redis.disconnect();
    }
  };
  const limits = defineLimits({
    api: {
      rate: "10/s",
      rules: ["3/10s", { algorithm: "token-bucket", max: 5, refillTime: "1s" }],
      concurrency: 2,
      admit: { algorithm: "sliding-log", limit: 200, per: "1m", key: () => "never asked" },
    },
  });
  const arrivals: Arrival[] = Array.from({ length: 300 }, (_, i) => ({
    at: i,
    duration: 1000,
    priority: i % 3 === 0 ? "low" : "normal",
    producer: `producer ${i % 7}`,
    cost: 2,
  }));

  test("is nothing after it, and nothing else is touched", async () => {
    const prefix = uniquePrefix();
    const redis = new Redis(redisUrl());
    await redis.set(`${prefix}:simulate`, "mine");
    redis.disconnect();
    const { total } = await simulate(limits, arrivals, { redis: redisUrl(), prefix });
    expect(total.offered).toBe(300);
    expect(await keysOf(prefix)).toEqual([`${prefix}:simulate`]);
  });

  test("is nothing after one that was ended in the middle", async () => {
    const prefix = uniquePrefix();
    const ending = new AbortController();
    const reason = new Error("enough");
    const onCall = (): void => ending.abort(reason);
    const simulation = simulate(limits, arrivals, { redis: redisUrl(), prefix, onCall, signal: ending.signal });
    await expect(simulation).rejects.toBe(reason);
    expect(await keysOf(prefix)).toEqual([]);
  });

  test("is nothing after one that was ended while it waited for the next arrival, which never came", async () => {
    const prefix = uniquePrefix();
    const ending = new AbortController();
    const reason = new Error("enough");
    async function* idle() {
      yield* arrivals;
      setTimeout(() => ending.abort(reason));
      await new Promise(() => {});
    }
    const simulation = simulate(limits, idle(), { redis: redisUrl(), prefix, signal: ending.signal });
    await expect(simulation).rejects.toBe(reason);
    expect(await keysOf(prefix)).toEqual([]);
    // Nor does one begin that was ended before.
    await expect(simulate(limits, idle(), { redis: redisUrl(), signal: ending.signal })).rejects.toBe(reason);
  });

  test("is nothing after an arrival that is none; until then it stays long enough, and not for ever", async () => {
    const prefix = uniquePrefix();
    const algorithm = "fixed-window";
    const quick = defineLimits({
      api: {
        rate: "1000/s",
        lateness: 0,
        rules: [{ algorithm, limit: 2, per: 1 }],
        admit: { algorithm, limit: 3, per: 1 },
      },
    });
    const kept: (readonly [string, number])[] = [];
    async function* breaking() {
      for (let i = 0; i < 9999; i++) yield { at: i };
      yield { at: 9999.001 };
      const redis = new Redis(redisUrl());
      for (const key of await keysOf(prefix)) kept.push([key, await redis.pttl(key)]);
      redis.disconnect();
      yield { at: 0 };
    }
    await expect(simulate(quick, breaking(), { redis: redisUrl(), prefix })).rejects.toThrow("Arrival 10001");
    // Real time must not matter: what a rule of 1 ms has counted may be needed whole minutes later.
    expect(kept.map(([key]) => key.split("}:")[1])).toEqual(
      expect.arrayContaining(["gate", "rule:fixed-window:2:1000", "quota:fixed-window:3:1000:"]),
    );
    for (const [key, milliseconds] of kept) {
      expect([key, milliseconds > 1_800_000, milliseconds < 2 * DAY]).toEqual([key, true, true]);
    }
    expect(await keysOf(prefix)).toEqual([]);
  });
});

test("a Redis that is not there is told within moments", async () => {
  // Nobody listens on the port of tcpmux.
  const simulation = simulate(defineLimits({ api: { rate: "1/s" } }), at(0), { redis: "redis://127.0.0.1:1" });
  await expect(simulation).rejects.toMatchObject({ code: "ERR_REDIS_UNAVAILABLE" });
});

test("wrong options are named", async () => {
  const limits = defineLimits({ api: { rate: "1/s" } });
  await expect(simulate(limits, [], { redys: "" } as object)).rejects.toThrow(InvalidLimitError);
  await expect(simulate(limits, [], { redys: "" } as object)).rejects.toThrow("did you mean `redis`?");
  await expect(simulate(limits, [], { prefix: "a b" })).rejects.toThrow("Expected `prefix`");
  await expect(simulate(limits, [], { onCall: 5 } as object)).rejects.toThrow("Expected `onCall`");
  await expect(simulate({} as typeof limits, [])).rejects.toThrow("Expected `limits`");
});
