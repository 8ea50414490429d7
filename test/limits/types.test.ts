/**
 * What must not compile. The lines marked `@ts-expect-error` count when this file is type-checked: an option that the
 * compiler let pass is then an error here. At run time the same mistakes must throw.
 */
import { describe, expect, expectTypeOf, it } from "vitest";
import { defineLimits } from "../../dist/limits/define.js";
import type { LimitName, Limits } from "../../dist/limits/define.js";
import type { Duration } from "../../dist/limits/duration.js";
import type { HeadersSource, Limit, LimitOptions, LimitRequest } from "../../dist/limits/options.js";
import type { Rate } from "../../dist/limits/rate.js";
import type { CallInit, CallTerms, Client, RunContext, RunOptions } from "spillway";

const limits = defineLimits({
  "api.github.com": { rate: "10/s", capacity: 500, concurrency: 8 },
  "api.github.com/search": { rate: { limit: 30, per: "1m" } },
  "*.myshopify.com": { rate: "2/s", burst: 40 },
  "*.example.net/admin": { rate: "2/s" },
  "*.example.org:8080": { rate: "2/s" },
  billing: { rate: "1/250ms", rules: ["20/m", "200/h", "800/d"], maxWait: "1m30s", lateness: 0 },
});
type Name = LimitName<typeof limits>;

const window = { algorithm: "fixed-window", limit: 1, per: "1d" } as const;

/** Stands for `run` and `limit` of a client. */
function run<const N extends string>(known: Limits<N>, name: LimitName<Limits<N>>): string {
  return known.resolve(name).limit.name;
}

const invalid = expect.objectContaining({ code: "ERR_INVALID_LIMIT" });
const unknown = expect.objectContaining({ code: "ERR_UNKNOWN_HOST" });

describe("durations and rates", () => {
  it("are checked by the compiler", () => {
    expectTypeOf<
      0 | 250 | "250ms" | "10s" | "1.5s" | "5m" | "1h" | "7d" | "1m30s" | "1d2h3m4s5ms"
    >().toExtend<Duration>();
    expectTypeOf<"5 parsecs">().not.toExtend<Duration>();
    expectTypeOf<"5x">().not.toExtend<Duration>();
    expectTypeOf<"5">().not.toExtend<Duration>();
    expectTypeOf<"30s1m">().not.toExtend<Duration>();
    expectTypeOf<"s">().not.toExtend<Duration>();
    expectTypeOf<string>().not.toExtend<Duration>();
    expectTypeOf<"10/s" | "600/m" | "800/d" | "5/10s" | "100/15m" | "1/250ms" | "1/1m30s">().toExtend<Rate>();
    expectTypeOf<{ limit: 5; per: "10s" }>().toExtend<Rate>();
    expectTypeOf<"10/x">().not.toExtend<Rate>();
    expectTypeOf<"10">().not.toExtend<Rate>();
    expectTypeOf<"10/sec">().not.toExtend<Rate>();
    expectTypeOf<10>().not.toExtend<Rate>();
    expectTypeOf<{ limit: 5; per: "10s"; counts: "cost" }>().toExtend<Rate>();
    expectTypeOf<{ limit: 5; per: "10s"; counts: "tokens" }>().not.toExtend<Rate>();
    expectTypeOf<{ limit: 5 }>().not.toExtend<Rate>();
    expectTypeOf<{ limit: 5; per: "10x" }>().not.toExtend<Rate>();
  });
});

describe("options", () => {
  it("that are misspelt or wrong do not compile, and throw", () => {
    // @ts-expect-error a misspelt option
    expect(() => defineLimits({ "a.com": { rate: "1/s", capacty: 500 } })).toThrow(invalid);
    // @ts-expect-error no rate
    expect(() => defineLimits({ "a.com": { capacity: 500 } })).toThrow(invalid);
    // @ts-expect-error a wrong unit
    expect(() => defineLimits({ "a.com": { rate: "1/parsec" } })).toThrow(invalid);
    // @ts-expect-error a wrong unit
    expect(() => defineLimits({ "a.com": { rate: "1/s", maxWait: "5 parsecs" } })).toThrow(invalid);
    // @ts-expect-error a wrong unit
    expect(() => defineLimits({ "a.com": { rate: "1/s", timeout: "5x" } })).toThrow(invalid);
    // @ts-expect-error a wrong rule
    expect(() => defineLimits({ "a.com": { rate: "1/s", rules: ["20/m", "20"] } })).toThrow(invalid);
    // @ts-expect-error a wrong word
    expect(() => defineLimits({ "a.com": { rate: "1/s", overflow: "drop" } })).toThrow(invalid);
    // @ts-expect-error a wrong type
    expect(() => defineLimits({ "a.com": { rate: "1/s", burst: "40" } })).toThrow(invalid);
    // @ts-expect-error true says nothing
    expect(() => defineLimits({ "a.com": { rate: "1/s", retry: true } })).toThrow(invalid);
    // @ts-expect-error a misspelt option of retry
    expect(() => defineLimits({ "a.com": { rate: "1/s", retry: { retries: 3 } } })).toThrow(invalid);
    // @ts-expect-error only calls or cost are counted
    expect(() => defineLimits({ "a.com": { rate: { limit: 5, per: "1m", counts: "tokens" } } })).toThrow(invalid);
    // @ts-expect-error a wrong type
    expect(() => defineLimits({ "a.com": { rate: "1/s", cost: "5" } })).toThrow(invalid);
    // @ts-expect-error true says nothing
    expect(() => defineLimits({ "a.com": { rate: "1/s", redeliver: true } })).toThrow(invalid);
    // @ts-expect-error a misspelt option of redeliver
    expect(() => defineLimits({ "a.com": { rate: "1/s", redeliver: { backof: "1m" } } })).toThrow(invalid);
    // @ts-expect-error a wrong unit
    expect(() => defineLimits({ "a.com": { rate: "1/s", redeliver: { maxAge: "2 days" } } })).toThrow(invalid);
    // @ts-expect-error a wrong type
    expect(() => defineLimits({ "a.com": { rate: "1/s", retry: { budget: "20%" } } })).toThrow(invalid);
    // @ts-expect-error a wrong type
    expect(() => defineLimits({ "a.com": { rate: "1/s", idempotency: "key" } })).toThrow(invalid);
    // @ts-expect-error headers that are no function would have to be stored
    expect(() => defineLimits({ "a.com": { rate: "1/s", headers: { authorization: "x" } } })).toThrow(invalid);
    // @ts-expect-error a key must be text
    expect(defineLimits({ "a.com": { rate: "1/s", key: () => 5 } }).names).toEqual(["a.com"]);
  });

  it("know the parameters of their functions", () => {
    defineLimits({
      "a.com": {
        rate: "1/s",
        key: (request) => {
          expectTypeOf(request).toEqualTypeOf<LimitRequest>();
          return request.method;
        },
        headers: async (request) => {
          expectTypeOf(request.id).toEqualTypeOf<string>();
          expectTypeOf(request.url).toEqualTypeOf<URL>();
          return { authorization: "x" };
        },
      },
    });
    defineLimits({
      "a.com": {
        rate: { limit: 1000, per: "1m", counts: "cost" },
        cost: ({ url, method, headers, body }) => {
          expectTypeOf(url).toEqualTypeOf<URL>();
          expectTypeOf(method).toEqualTypeOf<string>();
          expectTypeOf(headers).toEqualTypeOf<Headers>();
          expectTypeOf(body).toEqualTypeOf<string | undefined>();
          return 5;
        },
      },
    });
    // @ts-expect-error strict is for token buckets
    expect(() => defineLimits({ a: { rate: "1/s", admit: { ...window, strict: true } } })).toThrow(invalid);
    defineLimits({ a: { rate: "1/s", admit: { ...window, countRefused: true } } });
    defineLimits({ a: { rate: "1/s", admit: { algorithm: "token-bucket", max: 1, refillTime: "1s", strict: true } } });
    // @ts-expect-error a cost is a number
    defineLimits({ "a.com": { rate: "1/s", cost: () => "5" } });
    expectTypeOf<Headers | Record<string, string> | [string, string][]>().toExtend<HeadersSource>();
    expectTypeOf<NonNullable<LimitOptions["retry"]>>().toExtend<false | object>();
    expectTypeOf(limits.get("billing")).toEqualTypeOf<Limit | undefined>();
  });
});

describe("what one call may say", () => {
  type Fetch = NonNullable<Parameters<Client["fetch"]>[1]>;
  type Run = RunOptions;

  it("is the same for fetch, run and enqueue", () => {
    expectTypeOf<{ priority: "high"; cost: 5; maxWait: "2s" }>().toExtend<CallTerms>();
    expectTypeOf<{ priority: "high"; cost: 5; maxWait: "2s" }>().toExtend<Fetch>();
    expectTypeOf<{ priority: "low"; cost: 5; maxWait: 2000; key: "tenant" }>().toExtend<Run>();
    expectTypeOf<{ priority: "low"; maxWait: "2s"; dedupe: "key" }>().toExtend<CallInit>();
    expectTypeOf<{ dedupe: { key: "k"; mode: "refuse" } }>().toExtend<CallInit>();
    expectTypeOf<{ priority: "urgent" }>().not.toExtend<CallInit>();
    expectTypeOf<{ maxWait: "2 parsecs" }>().not.toExtend<CallInit>();
    expectTypeOf<{ cost: "5" }>().not.toExtend<Run>();
    expectTypeOf<{ dedupe: { key: "k"; mode: "replace" } }>().not.toExtend<CallInit>();
    expectTypeOf<{ dedupe: { mode: "refuse" } }>().not.toExtend<CallInit>();
  });

  it("leaves fetch as it was: its init, and its own word for the usual priority", () => {
    expectTypeOf<Client["fetch"]>().toExtend<typeof globalThis.fetch>();
    expectTypeOf<RequestInit>().toExtend<Fetch>();
    expectTypeOf<{ priority: "auto" }>().toExtend<Fetch>();
    expectTypeOf<{ priority: "auto" }>().not.toExtend<Run>();
  });

  it("run's function gets what it may use", () => {
    expectTypeOf<RunContext["settle"]>().toEqualTypeOf<(cost: number) => void>();
    expectTypeOf<Response>().toExtend<Parameters<RunContext["report"]>[0]>();
    expectTypeOf<RunContext["signal"]>().toEqualTypeOf<AbortSignal | undefined>();
  });
});

describe("names", () => {
  it("are the patterns, and the hosts that wildcards cover", () => {
    expectTypeOf<"api.github.com" | "api.github.com/search" | "billing">().toExtend<Name>();
    expectTypeOf<"*.myshopify.com" | "shop1.myshopify.com" | "shop1.myshopify.com:8080">().toExtend<Name>();
    expectTypeOf<"a.example.net/admin" | "a.example.org:8080">().toExtend<Name>();
    expectTypeOf<"unknown.host">().not.toExtend<Name>();
    expectTypeOf<"myshopify.com">().not.toExtend<Name>();
    expectTypeOf<"shop1.myshopify.com:x">().not.toExtend<Name>();
    expectTypeOf<"a.example.net">().not.toExtend<Name>();
    expectTypeOf<"a.example.org">().not.toExtend<Name>();
    expectTypeOf<"github.com">().not.toExtend<Name>();
    expectTypeOf<string>().not.toExtend<Name>();
  });

  it("that are unknown do not compile, and throw", () => {
    expect(run(limits, "billing")).toBe("billing");
    expect(run(limits, "shop1.myshopify.com")).toBe("*.myshopify.com");
    expect(run(limits, "shop1.myshopify.com:8080")).toBe("*.myshopify.com");
    expect(run(limits, "a.example.net/admin")).toBe("*.example.net/admin");
    expect(run(limits, "a.example.org:8080")).toBe("*.example.org:8080");
    // @ts-expect-error no such limit
    expect(() => run(limits, "unknown.host")).toThrow(unknown);
    // @ts-expect-error a wildcard does not cover the host itself
    expect(() => run(limits, "myshopify.com")).toThrow(unknown);
  });

  it("are any string for *, and where the limits are not known at compile time", () => {
    const all = defineLimits({ "api.github.com": { rate: "1/s" }, "*": { rate: "5/s" } });
    expectTypeOf<LimitName<typeof all>>().toEqualTypeOf<string>();
    expect(run(all, "anything")).toBe("*");

    const loaded: Record<string, LimitOptions> = { "api.github.com": { rate: "1/s" } };
    expectTypeOf(defineLimits(loaded)).toEqualTypeOf<Limits>();
    expectTypeOf(defineLimits(JSON.parse('{"a.com":{"rate":"1/s"}}'))).toEqualTypeOf<Limits>();
    expectTypeOf<LimitName<Limits>>().toEqualTypeOf<string>();
    expect(run(defineLimits(loaded), "api.github.com")).toBe("api.github.com");
  });

  it("do not hinder passing limits on", () => {
    const plain: Limits = limits;
    expectTypeOf(limits.names).toEqualTypeOf<
      readonly (
        | "api.github.com"
        | "api.github.com/search"
        | "*.myshopify.com"
        | "*.example.net/admin"
        | "*.example.org:8080"
        | "billing"
      )[]
    >();
    expect(plain.names).toHaveLength(6);
  });
});
