import { describe, expect, it } from "vitest";
import { defineLimits } from "../../dist/limits/define.js";
import { normalizePolicy } from "../../dist/limits/normalize.js";
import type { LimitOptions } from "../../dist/limits/options.js";

/** Options as plain JavaScript may pass them. */
const loose = (options: unknown): LimitOptions => options as LimitOptions;
const define = (options: unknown) => defineLimits({ "api.example.org": loose(options) }).get("api.example.org");

describe("defaults", () => {
  it("are filled in", () => {
    expect(define({ rate: "10/s" })).toEqual({
      name: "api.example.org",
      rate: { limit: 10, perMs: 1000 },
      burst: 1,
      rules: [],
      capacity: 1000,
      overflow: "reject",
      concurrency: undefined,
      latenessMs: 10,
      maxWaitMs: undefined,
      timeoutMs: 30_000,
      retry: {
        attempts: 3,
        minBackoffMs: 500,
        maxBackoffMs: 30_000,
        factor: 2,
        statuses: [408, 429, 500, 502, 503, 504],
        methods: ["GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"],
        budget: 0.2,
        afterRefusal: true,
      },
      redeliver: undefined,
      idempotency: false,
      cost: undefined,
      admit: undefined,
      key: undefined,
      headers: undefined,
      feedback: undefined,
      learn: false,
      adaptive: false,
      keepResultsMs: 3_600_000,
      maxRequestBytes: 1_048_576,
      maxResponseBytes: 10_485_760,
    });
  });

  it("stand for an option that is undefined", () => {
    const names = ["burst", "rules", "capacity", "overflow", "concurrency", "maxWait", "timeout", "retry", "lateness"];
    const more = ["key", "headers", "keepResults", "maxRequestBytes", "maxResponseBytes"];
    const absent = Object.fromEntries([...names, ...more].map((name) => [name, undefined]));
    expect(define({ rate: "10/s", ...absent })).toEqual(define({ rate: "10/s" }));
  });
});

describe("options", () => {
  it("are normalised", () => {
    const key = () => "tenant";
    const headers = () => ({ authorization: "secret" });
    const feedback = () => ({ pauseFor: 1000 });
    const limit = define({
      rate: { limit: 5, per: "10s" },
      burst: 40,
      rules: ["20/m", { limit: 200, per: "1h", counts: "cost" }],
      capacity: 5,
      overflow: "drop-oldest",
      concurrency: 8,
      lateness: 0,
      maxWait: "5m",
      timeout: 1000,
      retry: {
        attempts: 1,
        minBackoff: 1,
        maxBackoff: "1m",
        factor: 1.5,
        statuses: [503, 400],
        methods: ["post", "M-SEARCH"],
        budget: 1.5,
      },
      redeliver: { backoff: "1m" },
      idempotency: true,
      cost: 5,
      key,
      headers,
      feedback,
      learn: true,
      adaptive: true,
      keepResults: "7d",
      maxRequestBytes: 1,
      maxResponseBytes: 2,
    });
    expect(limit).toEqual({
      name: "api.example.org",
      rate: { limit: 5, perMs: 10_000 },
      burst: 40,
      rules: [
        { limit: 20, perMs: 60_000 },
        { limit: 200, perMs: 3_600_000, counts: "cost" },
      ],
      capacity: 5,
      overflow: "drop-oldest",
      concurrency: 8,
      latenessMs: 0,
      maxWaitMs: 300_000,
      timeoutMs: 1000,
      retry: {
        attempts: 1,
        minBackoffMs: 1,
        maxBackoffMs: 60_000,
        factor: 1.5,
        statuses: [503, 400],
        methods: ["POST", "M-SEARCH"],
        budget: 1.5,
        afterRefusal: true,
      },
      redeliver: { attempts: 5, backoffMs: 60_000, maxAgeMs: 259_200_000 },
      idempotency: true,
      cost: 5,
      admit: undefined,
      key,
      headers,
      feedback,
      learn: true,
      adaptive: true,
      keepResultsMs: 604_800_000,
      maxRequestBytes: 1,
      maxResponseBytes: 2,
    });
  });

  it("give a limit that is frozen throughout", () => {
    const limit = define({ rate: "1/s", rules: ["20/m"], retry: { statuses: [500], methods: ["GET"] } });
    const parts = [limit, limit?.rate, limit?.rules, limit?.rules[0], limit?.retry];
    const defaults = define({ rate: "1/s" });
    const lists = [limit, defaults].flatMap((one) => [one?.rules, one?.retry, one?.retry.statuses, one?.retry.methods]);
    for (const part of [...parts, ...lists]) {
      expect(part).toBeTypeOf("object");
      expect(part).toSatisfy(Object.isFrozen);
    }
  });

  it("take their values once: a later change of the definition changes nothing", () => {
    const rules: ["20/m"] = ["20/m"];
    const limits = defineLimits({ a: { rate: "1/s", rules } });
    rules.pop();
    expect(limits.get("a")?.rules).toEqual([{ limit: 20, perMs: 60_000 }]);
  });
});

describe("retry", () => {
  it("is one attempt when it is false, and has every default when it is empty", () => {
    expect(define({ rate: "1/s", retry: false })?.retry.attempts).toBe(1);
    expect(define({ rate: "1/s", retry: {} })?.retry).toEqual(define({ rate: "1/s" })?.retry);
  });

  it.each([[true], [null], [[]], ["3"]])("is refused as %j, with what it may be", (retry) => {
    expect(() => define({ rate: "1/s", retry })).toThrow(
      "Expected `api.example.org.retry` to be false, or an object such as { attempts: 5 }, got ",
    );
  });

  it("raises the default of maxBackoff to minBackoff, but refuses one that is declared below", () => {
    expect(define({ rate: "1/s", retry: { minBackoff: "1m" } })?.retry.maxBackoffMs).toBe(60_000);
    expect(() => define({ rate: "1/s", retry: { minBackoff: "1m", maxBackoff: "59s" } })).toThrow(
      'Expected `api.example.org.retry.maxBackoff` to be at least `minBackoff`, which is 1m, got "59s"',
    );
  });
});

describe("a wrong option", () => {
  const notPositiveIntegers = [0, -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 53, "5", true, null, {}, [5], 5n];
  const integers = ["burst", "capacity", "concurrency", "maxRequestBytes", "maxResponseBytes"];
  const notDurations = ["5 parsecs", "5", -1, Number.NaN, Number.POSITIVE_INFINITY, null, true, {}, "400d"];
  const durations = ["maxWait", "timeout", "keepResults", "lateness"];

  it.each([
    ...integers.flatMap((name) =>
      notPositiveIntegers
        .filter((value) => value !== Number.POSITIVE_INFINITY || name !== "concurrency")
        .map((value): [string, unknown] => [name, value]),
    ),
    ...durations.flatMap((name) => notDurations.map((value): [string, unknown] => [name, value])),
    ["burst", 1_000_001],
    ["maxRequestBytes", 256 * 1024 * 1024 + 1],
    ["maxResponseBytes", 256 * 1024 * 1024 + 1],
    ["maxWait", 0],
    ["timeout", "0s"],
    ["timeout", "25d"],
    ["keepResults", 0],
    ["lateness", "61s"],
    ["overflow", "drop"],
    ["overflow", "REJECT"],
    ["overflow", null],
    ["overflow", ["reject"]],
    ["rules", "20/m"],
    ["rules", null],
    ["rules", {}],
    ["retry", true],
    ["retry", 3],
    ["retry", null],
    ["retry", []],
  ] satisfies [string, unknown][])("throws, with its path: %s %o", (name, value) => {
    expect(() => define({ rate: "1/s", [name]: value })).toThrow(
      expect.objectContaining({ code: "ERR_INVALID_LIMIT", option: `api.example.org.${name}`, value }),
    );
  });

  it.each<[object, string]>([
    [{}, "rate"],
    [{ rate: undefined }, "rate"],
    [{ rate: 10 }, "rate"],
    [{ rate: { limit: 1, per: "x" } }, "rate.per"],
    [{ rate: "1/s", rules: ["20/m", "20/x"] }, "rules[1]"],
    [{ rate: "1/s", rules: ["20/m", { limit: 0, per: "1h" }] }, "rules[1].limit"],
    // eslint-disable-next-line no-sparse-arrays
    [{ rate: "1/s", rules: [, "20/m"] }, "rules[0]"],
    [{ rate: "1/s", retry: { attempts: 0 } }, "retry.attempts"],
    [{ rate: "1/s", retry: { attempts: 101 } }, "retry.attempts"],
    [{ rate: "1/s", retry: { minBackoff: 0 } }, "retry.minBackoff"],
    [{ rate: "1/s", retry: { maxBackoff: "25d" } }, "retry.maxBackoff"],
    [{ rate: "1/s", retry: { factor: 0.9 } }, "retry.factor"],
    [{ rate: "1/s", retry: { factor: Number.NaN } }, "retry.factor"],
    [{ rate: "1/s", retry: { factor: 101 } }, "retry.factor"],
    [{ rate: "1/s", retry: { statuses: 500 } }, "retry.statuses"],
    [{ rate: "1/s", retry: { statuses: [500, 399] } }, "retry.statuses[1]"],
    [{ rate: "1/s", retry: { statuses: [600] } }, "retry.statuses[0]"],
    [{ rate: "1/s", retry: { methods: "GET" } }, "retry.methods"],
    [{ rate: "1/s", retry: { methods: ["GET", ""] } }, "retry.methods[1]"],
    [{ rate: "1/s", retry: { methods: ["G T"] } }, "retry.methods[0]"],
    [{ rate: "1/s", retry: { methods: [5] } }, "retry.methods[0]"],
    [{ rate: "1/s", retry: { retries: 3 } }, "retry.retries"],
    [{ rate: "1/s", retry: { budget: -1 } }, "retry.budget"],
    [{ rate: "1/s", redeliver: true }, "redeliver"],
    [{ rate: "1/s", redeliver: { backoff: "999ms" } }, "redeliver.backoff"],
    [{ rate: "1/s", redeliver: { attempts: 0 } }, "redeliver.attempts"],
    [{ rate: "1/s", redeliver: { maxAge: "0ms" } }, "redeliver.maxAge"],
    [{ rate: "1/s", redeliver: { age: "1d" } }, "redeliver.age"],
    [{ rate: "1/s", idempotency: "yes" }, "idempotency"],
    [{ rate: "1/s", cost: 0 }, "cost"],
    [{ rate: "1/s", cost: 1.5 }, "cost"],
    [{ rate: { limit: 5, per: "1s", counts: "points" } }, "rate.counts"],
    [{ rate: "1/s", key: "tenant" }, "key"],
    [{ rate: "1/s", headers: null }, "headers"],
    [{ rate: "1/s", admit: 5 }, "admit"],
    [{ rate: "1/s", admit: { algorithm: "none", limit: 5, per: "1s" } }, "admit.algorithm"],
    [{ rate: "1/s", admit: { algorithm: "fixed-window", limit: 5, per: "1s", strict: true } }, "admit.strict"],
    [{ rate: "1/s", admit: { algorithm: "fixed-window", limit: 5, per: "1s", key: "tenant" } }, "admit.key"],
    [{ rate: "1/s", admit: { algorithm: "fixed-window", limit: 5, per: "1s", counts: 1 } }, "admit.counts"],
    [{ rate: "1/s", rules: [{ algorithm: "fixed-window", limit: 0, per: "1s" }] }, "rules[0].limit"],
    [{ rate: "1/s", rules: [{ algorithm: "fixed-window", limit: 1, per: "1s", count: 1 }] }, "rules[0].count"],
  ])("throws, with its path: %o", (options, option) => {
    expect(() => define(options)).toThrow(
      expect.objectContaining({ code: "ERR_INVALID_LIMIT", option: `api.example.org.${option}` }),
    );
  });

  it.each<[unknown]>([[null], [undefined], ["1/s"], [5], [["1/s"]], [() => ({ rate: "1/s" })]])(
    "throws when the options are %o",
    (options) => {
      expect(() => define(options)).toThrow(
        expect.objectContaining({ code: "ERR_INVALID_LIMIT", option: "api.example.org", value: options }),
      );
    },
  );

  it.each<[string, string | undefined]>([
    ["capacty", "capacity"],
    ["CAPACITY", "capacity"],
    ["concurency", "concurrency"],
    ["maxwait", "maxWait"],
    ["rule", "rules"],
    ["header", "headers"],
    ["constructor", undefined],
    ["toString", undefined],
    ["x", undefined],
  ])("throws for the unknown %s, and says whether %s was meant", (name, meant) => {
    const advice = meant === undefined ? "the options are rate, burst, rules," : `did you mean \`${meant}\`?)`;
    expect(() => define({ rate: "1/s", [name]: 500 })).toThrow(
      expect.objectContaining({
        option: `api.example.org.${name}`,
        value: 500,
        expected: expect.stringContaining(advice),
      }),
    );
  });

  it.each([
    { headers: { authorization: "hunter2" } },
    { headers: [["authorization", "hunter2"]] },
    { headers: "hunter2" },
    { header: { authorization: "hunter2" } },
  ])("does not quote credentials in its error: %o", (options) => {
    expect.assertions(2);
    try {
      define({ rate: "1/s", ...options });
    } catch (error) {
      expect(String(error)).toMatch(/^InvalidLimitError: Expected `api.example.org.headers?` to be/);
      expect(JSON.stringify(error) + String(error)).not.toContain("hunter2");
    }
  });
});

describe("normalizePolicy", () => {
  it("gives back what it is given, and nothing else", () => {
    expect(normalizePolicy({}, "a")).toEqual({});
    expect(normalizePolicy({ rate: "5/s", lateness: "20ms", rules: [] }, "a")).toEqual({
      rate: { limit: 5, perMs: 1000 },
      latenessMs: 20,
      rules: [],
    });
  });

  it("refuses what is wrong, unknown, or fixed by the definition", () => {
    const change = (changes: unknown) => () => normalizePolicy(changes as Partial<LimitOptions>, "a");
    expect(change({ capacity: 0 })).toThrow(expect.objectContaining({ option: "a.capacity" }));
    expect(change({ capacty: 5 })).toThrow(expect.objectContaining({ option: "a.capacty" }));
    expect(change({ timeout: "5s" })).toThrow(expect.objectContaining({ option: "a.timeout" }));
    expect(change(null)).toThrow(expect.objectContaining({ option: "a" }));
  });
});
