import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { defineLimits } from "../../dist/limits/define.js";
import type { BucketRef, Limits } from "../../dist/limits/define.js";
import type { LimitOptions } from "../../dist/limits/options.js";

const define = (...names: string[]): Limits =>
  defineLimits(Object.fromEntries(names.map((name) => [name, { rate: "1/s" } as const])));

describe("a pattern", () => {
  it.each<[string, string]>([
    ["api.github.com", "api.github.com"],
    ["API.GitHub.com.", "api.github.com"],
    ["api.github.com/", "api.github.com"],
    ["api.github.com/search/", "api.github.com/search"],
    ["api.github.com/a/../search", "api.github.com/search"],
    ["api.github.com./search", "api.github.com/search"],
    ["Bücher.example", "xn--bcher-kva.example"],
    ["*.Bücher.example", "*.xn--bcher-kva.example"],
    ["*.com", "*.com"],
    ["*", "*"],
    ["*:8080", "*:8080"],
    ["*/v1", "*/v1"],
    ["*.a.b:0080/x", "*.a.b:80/x"],
    ["localhost:8080", "localhost:8080"],
    ["[0:0::1]", "[::1]"],
    ["[::1]:80/x", "[::1]:80/x"],
    ["127.1", "127.0.0.1"],
    ["openai-chat", "openai-chat"],
    ["Billing", "billing"],
    ["my_service", "my_service"],
    ["a.com/@scope/x:y", "a.com/@scope/x:y"],
  ])("%s is the limit %s", (declared, name) => {
    const limits = define(declared);
    expect(limits.names).toEqual([declared]);
    expect(limits.get(declared)?.name).toBe(name);
    expect(limits.get(name)?.name).toBe(name);
  });

  it.each<[string, string]>([
    ["", "not empty"],
    ["https://x", "without a scheme"],
    ["HTTP://x/y", "without a scheme"],
    ["//x", "host pattern"],
    ["/search", "host pattern"],
    ["a b", "whitespace"],
    [" a", "whitespace"],
    ["a\n", "whitespace"],
    ["a\0", "whitespace"],
    ["a\\b", "backslash"],
    ["a*b", "*"],
    ["*b.com", "*"],
    ["a.*", "*"],
    ["a.*.com", "*"],
    ["*.*.x", "*"],
    ["**", "*"],
    ["*.", "host pattern"],
    ["*..x", "host pattern"],
    ["a.com/*", "a path is a prefix"],
    ["a.com/search?q=1", "query"],
    ["a.com?q", "query"],
    ["a.com#f", "fragment"],
    ["user@a.com", "user"],
    ["user:pass@a.com/x", "user"],
    ["a..b", "host pattern"],
    [".a", "host pattern"],
    [".", "host pattern"],
    ["a|b", "host pattern"],
    ["a{b", "host pattern"],
    ["a,b", "host pattern"],
    ["1.2.3.256", "host pattern"],
    ["*.1.2.3.4", "host pattern"],
    ["*.[::1]", "host pattern"],
    ["::1", "host pattern"],
    ["[::1", "host pattern"],
    ["[::g]", "host pattern"],
    ["a.com:", "host pattern"],
    ["a.com:x", "host pattern"],
    ["a.com:8080:1", "host pattern"],
    ["a.com:0", "port"],
    ["a.com:65536", "port"],
    ["a.com:123456", "host pattern"],
    [":8080", "host pattern"],
  ])("is not %j", (declared, expected) => {
    expect(() => define("ok", declared)).toThrow(
      expect.objectContaining({
        code: "ERR_INVALID_LIMIT",
        option: "name of a limit",
        expected: expect.stringContaining(expected),
        value: declared,
      }),
    );
    expect(define("ok").get(declared)).toBeUndefined();
  });

  it.each([
    ["a.com", "A.com"],
    ["a.com", "a.com."],
    ["a.com", "a.com/"],
    ["a.com/x", "a.com/x/"],
    ["a.com/~x", "a.com/%7Ex"],
    ["bücher.example", "xn--bcher-kva.example"],
    ["[::1]", "[0::1]"],
    ["a:80", "a:080"],
  ])("may not be declared twice: %s and %s", (one, other) => {
    expect(() => define(one, other)).toThrow(
      expect.objectContaining({ code: "ERR_INVALID_LIMIT", expected: expect.stringContaining("unique"), value: other }),
    );
  });

  it("may differ by case in the path, by port, or by wildcard only", () => {
    expect(define("a.com/x", "a.com/X", "a.com", "a.com:80", "a.com:443", "*.a.com", "*").names).toHaveLength(7);
  });
});

describe("defineLimits", () => {
  it.each<[unknown]>([[{}], [[]], [null], [undefined], ["10/s"], [() => ({})], [new Map([["a", { rate: "1/s" }]])]])(
    "refuses %o",
    (definition) => {
      expect(() => defineLimits(definition as Record<string, LimitOptions>)).toThrow(
        expect.objectContaining({ code: "ERR_INVALID_LIMIT", option: "limits" }),
      );
    },
  );

  it("gives an object that is frozen, and whose methods need no this", () => {
    const limits = define("a.com");
    expect(limits).toSatisfy(Object.isFrozen);
    expect(limits.names).toSatisfy(Object.isFrozen);
    const { match, resolve, get, ofBucket } = limits;
    const refs = [match("https://a.com"), resolve("a.com"), ofBucket("a.com")];
    expect(refs.map((ref) => ref?.limit)).toEqual([get("a.com"), get("a.com"), get("a.com")]);
  });

  it("is not confused by names that objects bring along", () => {
    const limits = define("constructor", "tostring");
    expect(limits.get("__proto__")).toBeUndefined();
    expect(limits.get("hasownproperty")).toBeUndefined();
    expect(limits.get("constructor")?.name).toBe("constructor");
    expect(() => limits.match("https://valueof/")).toThrow(expect.objectContaining({ code: "ERR_UNKNOWN_HOST" }));
  });

  it("paths of options begin with the pattern as it was declared", () => {
    expect(() => defineLimits({ "API.github.com/": { rate: "1/s", capacity: 0 } })).toThrow(
      "Expected `API.github.com/.capacity` to be a positive integer, got 0",
    );
  });
});

describe("resolve", () => {
  const limits = define(
    "api.github.com",
    "api.github.com/search",
    "*.myshopify.com",
    "special.myshopify.com",
    "*.eu.myshopify.com",
    "billing",
  );

  it.each<[string, string | undefined, string]>([
    ["api.github.com", undefined, "api.github.com"],
    ["API.github.com.", undefined, "api.github.com"],
    ["api.github.com/search", undefined, "api.github.com/search"],
    ["billing", undefined, "billing"],
    ["billing", "tenant:7", "billing|tenant%3A7"],
    ["shop1.myshopify.com", undefined, "*.myshopify.com|shop1.myshopify.com"],
    ["Shop1.MyShopify.com.", undefined, "*.myshopify.com|shop1.myshopify.com"],
    ["shop1.myshopify.com:443", undefined, "*.myshopify.com|shop1.myshopify.com"],
    ["shop1.myshopify.com:8080", undefined, "*.myshopify.com|shop1.myshopify.com%3A8080"],
    ["shop1.myshopify.com", "tenant7", "*.myshopify.com|shop1.myshopify.com|tenant7"],
    ["*.myshopify.com", "shop1.myshopify.com", "*.myshopify.com|shop1.myshopify.com"],
    ["*.MyShopify.com", "Shop1.myshopify.com", "*.myshopify.com|shop1.myshopify.com"],
    ["special.myshopify.com", undefined, "special.myshopify.com"],
  ])("%s with key %s is the bucket %s", (name, key, bucket) => {
    expect(limits.resolve(name, key).bucket).toBe(bucket);
  });

  it.each<[string, string | undefined]>([
    ["unknown.host", undefined],
    ["api.github.com/zen", undefined],
    ["api.github.com:8080", undefined],
    ["myshopify.com", undefined],
    ["shop1.myshopify.com/admin", undefined],
    ["*.github.com", "api.github.com"],
    ["*", "api.github.com"],
    ["*.myshopify.com", "myshopify.com"],
    ["*.myshopify.com", "example.com"],
    // Requests to this host are governed by its own limit.
    ["*.myshopify.com", "special.myshopify.com"],
    ["*.myshopify.com", "shop1.eu.myshopify.com"],
    ["*.myshopify.com", "shop1.myshopify.com/admin"],
    ["*.shop1.myshopify.com", undefined],
    ["*.myshopify.com", "*.myshopify.com"],
    ["*.myshopify.com", "shop 1"],
    ["https://api.github.com", undefined],
    ["", undefined],
    ["bill ing", undefined],
  ])("refuses %j with key %j: no such limit", (name, key) => {
    expect(() => limits.resolve(name, key)).toThrow(
      expect.objectContaining({
        code: "ERR_UNKNOWN_HOST",
        host: name.startsWith("*") && limits.get(name) ? key : name,
      }),
    );
  });

  it.each<[unknown]>([[5], [null], [undefined], [{}], [["billing"]]])("refuses %o as a name: no such limit", (name) => {
    expect(() => limits.resolve(name as string)).toThrow(expect.objectContaining({ code: "ERR_UNKNOWN_HOST" }));
    expect(limits.get(name as string)).toBeUndefined();
  });

  it("asks for the host of a wildcard, and for the key of a limit that has one for each", () => {
    const keyed = defineLimits({
      "api.example.org": { rate: "1/s", key: () => "t" },
      "*.example.net": { rate: "1/s", key: () => "t" },
    });
    const invalid = expect.objectContaining({ code: "ERR_INVALID_CALL" });
    expect(() => limits.resolve("*.myshopify.com")).toThrow(invalid);
    expect(() => keyed.resolve("api.example.org")).toThrow(invalid);
    expect(() => keyed.resolve("a.example.net")).toThrow(invalid);
    expect(() => keyed.resolve("*.example.net", "a.example.net")).toThrow(invalid);
    expect(() => limits.resolve("billing", "")).toThrow(invalid);
    expect(keyed.resolve("a.example.net", "t").bucket).toBe(keyed.match("https://a.example.net/x").bucket);
    expect(keyed.resolve("api.example.org", "t").bucket).toBe(keyed.match("https://api.example.org/x").bucket);
  });

  it("takes any host where * is declared", () => {
    const all = define("*", "*:8080", "*.x.io/admin", "*.y.io:443");
    expect(all.resolve("a.y.io").bucket).toBe(all.match("https://a.y.io/").bucket);
    expect(all.resolve("some-job").bucket).toBe("*|some-job");
    expect(all.resolve("*", "[::1]:9").bucket).toBe("*|[%3A%3A1]%3A9");
    expect(all.resolve("*:8080", "a.com").bucket).toBe("*%3A8080|a.com%3A8080");
    expect(all.resolve("*:8080", "a.com").bucket).toBe(all.match("http://a.com:8080/").bucket);
    expect(all.resolve("a.x.io/admin").bucket).toBe("*.x.io/admin|a.x.io");
    expect(all.resolve("*.x.io/admin", "a.x.io").bucket).toBe("*.x.io/admin|a.x.io");
  });
});

describe("buckets of a wildcard", () => {
  const limits = define("*.x.io", "*");

  it("are one for each host, with the port unless it is a default one", () => {
    const bucket = (url: string): string => limits.match(url).bucket;
    expect(bucket("https://a.x.io/1")).toBe("*.x.io|a.x.io");
    for (const url of ["http://a.x.io/2?q", "https://A.x.io.:443/", "http://u:p@a.x.io:80/"]) {
      expect(bucket(url)).toBe(bucket("https://a.x.io/1"));
    }
    expect(bucket("https://b.x.io/")).not.toBe(bucket("https://a.x.io/"));
    expect(bucket("https://a.x.io:8443/")).toBe("*.x.io|a.x.io%3A8443");
    expect(bucket("https://a.com/")).toBe("*|a.com");
  });

  it("are not to be had for a limit without wildcard", () => {
    const ref = define("localhost").match("http://localhost:8080/");
    expect(ref).toMatchObject({ bucket: "localhost", host: undefined, key: undefined });
  });
});

describe("ofBucket", () => {
  const limits = defineLimits({
    "api.example.org": { rate: "1/s", key: ({ headers }) => headers.get("tenant") ?? "none" },
    "*.example.net": { rate: "1/s", key: ({ headers }) => headers.get("tenant") ?? "none" },
    [`long.example/${"p".repeat(200)}`]: { rate: "1/s" },
    "*": { rate: "1/s" },
  });

  it.each([
    "https://api.example.org/",
    "https://a.example.net:8443/",
    `https://long.example/${"p".repeat(200)}/x`,
    "http://[::1]:80/",
    "https://a|b@{x}.example/".replace("|", "%7C"),
  ])("gives back what match found for %s", (url) => {
    const headers = new Headers({ tenant: "7 | {a}:b ~" });
    const ref: BucketRef = limits.match(url, { headers });
    expect(limits.ofBucket(ref.bucket)).toEqual(ref);
    expect(limits.ofBucket(ref.bucket)?.limit).toBe(ref.limit);
  });

  it("knows the limit of any key, and the key unless the name was shortened", () => {
    fc.assert(
      fc.property(fc.string({ unit: "grapheme", minLength: 1, maxLength: 300 }), (key) => {
        const ref = limits.resolve("api.example.org", key);
        const found = limits.ofBucket(ref.bucket);
        expect(found?.limit).toBe(ref.limit);
        expect(found?.key).toBe(ref.bucket.includes("~") ? undefined : key);
      }),
    );
  });

  it.each(["", "unknown", "unknown|key", "|", "api.example.org%7Ckey", "api.example"])("knows no %j", (bucket) => {
    expect(limits.ofBucket(bucket)).toBeUndefined();
  });
});
