import { inspect } from "node:util";
import fc from "fast-check";
import { describe, expect, it, vi } from "vitest";
import { defineLimits } from "../../dist/limits/define.js";
import type { Limits } from "../../dist/limits/define.js";

const define = (...names: string[]): Limits =>
  defineLimits(Object.fromEntries(names.map((name) => [name, { rate: "1/s" } as const])));

/** The name of the limit that governs a URL, or "-". */
function governs(limits: Limits, url: string | URL): string {
  try {
    return limits.match(url).limit.name;
  } catch (error) {
    expect(error).toMatchObject({ code: "ERR_UNKNOWN_HOST" });
    return "-";
  }
}

describe("match", () => {
  const limits = define(
    "api.github.com",
    "api.github.com/search",
    "api.github.com/search/code",
    "api.stripe.com/v1",
    "*.myshopify.com",
    "*.eu.myshopify.com",
    "special.myshopify.com",
    "*.myshopify.com/admin/api",
    "*.github.io:8443",
    "localhost",
    "localhost:8080",
    "localhost:8080/health",
    "localhost:443",
    "bücher.example",
    "127.0.0.1",
    "[::1]",
    "[2001:db8:0:0::1]:8080",
    "registry.npmjs.org/@scope",
    "*.co.uk",
    "example.com/%7Euser",
    "example.com/grüße",
  );

  it.each<[string, string]>([
    ["https://api.github.com", "api.github.com"],
    ["https://api.github.com/zen", "api.github.com"],
    ["http://api.github.com/zen", "api.github.com"],
    ["https://API.GitHub.Com/zen", "api.github.com"],
    ["https://api.github.com./zen", "api.github.com"],
    ["https://api.github.com:443/zen", "api.github.com"],
    ["https://api.github.com:8443/zen", "api.github.com"],
    ["https://user:pa%40ss@api.github.com/zen", "api.github.com"],
    ["  https://api.github.com/zen\n", "api.github.com"],
    ["https://api.github.com/search", "api.github.com/search"],
    ["https://api.github.com/search/", "api.github.com/search"],
    ["https://api.github.com/search?q=a/b", "api.github.com/search"],
    ["https://api.github.com/search#code", "api.github.com/search"],
    ["https://api.github.com/search/issues?q=is:pr", "api.github.com/search"],
    ["https://api.github.com/search//code", "api.github.com/search"],
    ["https://api.github.com/search/code", "api.github.com/search/code"],
    ["https://api.github.com/search/code/x/y/z", "api.github.com/search/code"],
    ["https://api.github.com/search/codes", "api.github.com/search"],
    ["https://api.github.com/searching", "api.github.com"],
    ["https://api.github.com/Search", "api.github.com"],
    ["https://api.github.com//search", "api.github.com"],
    ["https://api.github.com/x/search", "api.github.com"],
    ["https://api.github.com/x/../search", "api.github.com/search"],
    ["https://api.github.com/search/../zen", "api.github.com"],
    ["https://api.github.com/x/%2e%2E/search", "api.github.com/search"],
    ["https://api.github.com/%73earch", "api.github.com/search"],
    ["https://api.github.com/search%2Fcode", "api.github.com"],
    ["https://api.github.com/search%3Fq", "api.github.com"],
    ["https://api.github.com\\search\\x", "api.github.com/search"],
    ["https://xapi.github.com/", "-"],
    ["https://api.github.com.evil.example/", "-"],
    ["https://evil.example/?api.github.com", "-"],
    ["https://api.github.com@evil.example/", "-"],
    ["https://github.com/", "-"],

    ["https://api.stripe.com/v1/charges", "api.stripe.com/v1"],
    ["https://api.stripe.com/v2/charges", "-"],
    ["https://api.stripe.com/", "-"],

    ["https://shop1.myshopify.com/products.json", "*.myshopify.com"],
    ["https://a.b.myshopify.com/", "*.myshopify.com"],
    ["https://shop1.eu.myshopify.com/", "*.eu.myshopify.com"],
    ["https://eu.myshopify.com/", "*.myshopify.com"],
    ["https://special.myshopify.com/admin/api", "special.myshopify.com"],
    ["https://shop1.myshopify.com/admin/api/2024-01/orders.json", "*.myshopify.com/admin/api"],
    ["https://shop1.eu.myshopify.com/admin/api", "*.eu.myshopify.com"],
    ["https://myshopify.com/", "-"],
    ["https://.myshopify.com/", "-"],
    ["https://evilmyshopify.com/", "-"],
    ["https://www.bbc.co.uk/", "*.co.uk"],
    ["https://co.uk/", "-"],

    ["https://me.github.io:8443/", "*.github.io:8443"],
    ["https://me.github.io/", "-"],

    ["http://localhost/", "localhost"],
    ["http://localhost:3000/", "localhost"],
    ["http://localhost:8080/", "localhost:8080"],
    ["http://localhost:8080/health", "localhost:8080/health"],
    ["http://localhost:3000/health", "localhost"],
    ["https://localhost/", "localhost:443"],
    ["https://localhost:443/", "localhost:443"],
    ["http://localhost:443/", "localhost:443"],
    ["https://localhost:80/", "localhost"],

    ["https://bücher.example/", "xn--bcher-kva.example"],
    ["https://BÜCHER.example/", "xn--bcher-kva.example"],
    ["https://xn--bcher-kva.example/", "xn--bcher-kva.example"],
    ["http://127.0.0.1:6379/", "127.0.0.1"],
    ["http://0x7f.1/", "127.0.0.1"],
    ["http://2130706433/", "127.0.0.1"],
    ["http://127.0.0.1./", "127.0.0.1"],
    ["http://[::1]/", "[::1]"],
    ["http://[0:0:0:0:0:0:0:1]:99/", "[::1]"],
    ["http://[2001:DB8::1]:8080/", "[2001:db8::1]:8080"],
    ["http://[2001:db8::1]/", "-"],

    ["https://registry.npmjs.org/@scope/pkg", "registry.npmjs.org/@scope"],
    ["https://registry.npmjs.org/@scope%2fpkg", "-"],
    ["https://example.com/~user/x", "example.com/~user"],
    ["https://example.com/%7euser", "example.com/~user"],
    ["https://example.com/gr%c3%bc%C3%9Fe/x", "example.com/gr%C3%BC%C3%9Fe"],
    ["https://example.com/grüße", "example.com/gr%C3%BC%C3%9Fe"],
  ])("%s is governed by %s", (url, name) => {
    expect(governs(limits, url)).toBe(name);
    expect(governs(limits, new URL(url))).toBe(name);
  });

  it("lets * cover any other host, and a path under it only that path", () => {
    const all = define("api.github.com", "*.x.io", "*", "*/graphql", "*:9000", "api.stripe.com/v1");
    expect(governs(all, "https://api.github.com/graphql")).toBe("api.github.com");
    expect(governs(all, "https://a.x.io/graphql")).toBe("*.x.io");
    expect(governs(all, "https://x.io/")).toBe("*");
    expect(governs(all, "https://intranet/graphql/x")).toBe("*/graphql");
    expect(governs(all, "https://api.stripe.com/v2")).toBe("*");
    expect(governs(all, "http://[::1]:9000/")).toBe("*:9000");
    expect(governs(all, "http://1.2.3.4/")).toBe("*");
    expect(governs(all, "http://./")).toBe("-");
  });

  it("names the host, with its port, that no limit covers", () => {
    expect(() => limits.match("https://u:p@evil.example:8443/x?token=1")).toThrow(
      expect.objectContaining({ code: "ERR_UNKNOWN_HOST", host: "evil.example:8443" }),
    );
  });

  it.each<[unknown]>([
    [""],
    ["/zen"],
    ["api.github.com/zen"],
    ["//api.github.com/zen"],
    ["https://"],
    ["https://a b/"],
    ["http://api.github.com:99999/"],
    ["ftp://api.github.com/"],
    ["file:///etc/passwd"],
    ["data:text/plain,hi"],
    ["localhost:8080/"],
    ["javascript:alert(1)"],
    [new URL("ws://api.github.com/")],
    [undefined],
    [null],
    [5],
    [{}],
    [Object.create(null)],
    [Symbol("https://api.github.com")],
  ])("refuses %o, which is no http: or https: URL", (url) => {
    expect(() => limits.match(url as string)).toThrow(
      expect.objectContaining({ code: "ERR_INVALID_CALL", message: expect.stringContaining("http: or https: URL") }),
    );
  });

  it("does not quote the query of a URL that it refuses", () => {
    expect.assertions(2);
    try {
      limits.match("api.github.com/x?token=hunter2");
    } catch (error) {
      expect(String(error)).toContain('Expected an absolute http: or https: URL, got "api.github.com/x?…"');
      expect(inspect(error)).not.toContain("hunter2");
    }
  });

  it("looks into a handful of maps, however many limits, labels and segments there are", () => {
    const many = define(...Array.from({ length: 5000 }, (_, i) => `h${i}.example/p${i}`), "*.many.example/a/b");
    const lookups = vi.spyOn(Map.prototype, "get");
    try {
      expect(governs(many, "https://h4999.example/p4999/x")).toBe("h4999.example/p4999");
      expect(governs(many, `https://${"a.".repeat(5000)}many.example/${"a/".repeat(5000)}`)).toBe("-");
      expect(lookups.mock.calls.length).toBeGreaterThan(3);
      expect(lookups.mock.calls.length).toBeLessThan(30);
    } finally {
      lookups.mockRestore();
    }
  });
});

describe("match agrees with a naive reference", () => {
  interface Parts {
    readonly host: readonly string[];
    readonly star: boolean;
    readonly port: number | undefined;
    readonly path: readonly string[];
  }

  // Few words, so that prefixes and suffixes of each other are common.
  const labels = fc.array(fc.constantFrom("a", "b", "ab", "xn--bcher-kva"), { minLength: 1, maxLength: 4 });
  const segments = fc.array(fc.constantFrom("x", "y", "xy", "X"), { maxLength: 4 });
  const ports = fc.constantFrom(undefined, 80, 443, 8080);
  const parts = (star: boolean) => fc.record({ host: labels, star: fc.constant(star), port: ports, path: segments });
  const any = fc.record({ host: fc.constant([]), star: fc.constant(true), port: ports, path: segments });
  const pattern: fc.Arbitrary<Parts> = fc.oneof(parts(false), parts(true), any);

  const text = ({ host, star, port, path }: Parts): string =>
    [...(star ? ["*"] : []), ...host].join(".") +
    (port === undefined ? "" : `:${port}`) +
    path.map((segment) => `/${segment}`).join("");

  const endsWith = (whole: readonly string[], tail: readonly string[]): boolean =>
    tail.every((word, index) => whole[whole.length - tail.length + index] === word);

  function covers(limit: Parts, url: Parts, scheme: string): boolean {
    const port = url.port ?? (scheme === "http" ? 80 : 443);
    const longer = limit.star ? url.host.length > limit.host.length : url.host.length === limit.host.length;
    return (
      longer &&
      endsWith(url.host, limit.host) &&
      (limit.port === undefined || limit.port === port) &&
      limit.path.every((segment, index) => url.path[index] === segment)
    );
  }

  /** Larger is more specific, the first difference decides. */
  const rank = (limit: Parts): number[] => [
    limit.star ? 0 : 1,
    limit.host.length,
    limit.port === undefined ? 0 : 1,
    limit.path.length,
  ];
  const compare = (a: Parts, b: Parts): number =>
    rank(a)
      .map((value, index) => value - (rank(b)[index] ?? 0))
      .find((difference) => difference !== 0) ?? 0;

  /** A URL near one of the patterns, since one at random is seldom covered by any. */
  const near = (url: Parts, limit: Parts): Parts => ({
    host: limit.star ? [...url.host, ...limit.host] : limit.host,
    star: false,
    port: limit.port ?? url.port,
    path: [...limit.path, ...url.path],
  });

  it("for random patterns and URLs", () => {
    let matched = 0;
    const definition = fc.uniqueArray(pattern, { minLength: 1, maxLength: 12, selector: text });
    const schemes = fc.constantFrom("http", "https");
    fc.assert(
      fc.property(definition, parts(false), fc.nat(20), schemes, fc.boolean(), (known, random, pick, scheme, slash) => {
        const limit = known[pick];
        const url = limit === undefined ? random : near(random, limit);
        const best = known
          .filter((one) => covers(one, url, scheme))
          .sort(compare)
          .at(-1);
        const address = `${scheme}://${text(url)}${slash ? "/" : ""}?q`;
        expect(governs(define(...known.map(text)), address)).toBe(best === undefined ? "-" : text(best));
        if (best !== undefined) matched++;
      }),
      { numRuns: 2000 },
    );
    // Else the property would say little.
    expect(matched).toBeGreaterThan(400);
    expect(matched).toBeLessThan(1800);
  });
});

describe("key", () => {
  it("gets the request, and gives each value a bucket of its own", () => {
    const limits = defineLimits({
      "api.example.org": {
        rate: "1/s",
        key: ({ url, method, headers }) => `${method} ${url.pathname} ${headers.get("x")}`,
      },
      "*.example.net": { rate: "1/s", key: ({ headers }) => headers.get("x") ?? "none" },
    });
    const headers = new Headers({ x: "7" });
    const one = limits.match("https://api.example.org/v1", { method: "POST", headers });
    expect(one.key).toBe("POST /v1 7");
    expect(one.bucket).toBe("api.example.org|POST%20/v1%207");
    expect(limits.match("https://api.example.org/v1").key).toBe("GET /v1 null");
    expect(limits.match("https://a.example.net/", { headers })).toMatchObject({
      bucket: "*.example.net|a.example.net|7",
      host: "a.example.net",
      key: "7",
    });
  });

  it.each<[unknown]>([[""], [undefined], [null], [5], [Promise.resolve("tenant")], [{}], ["\uD800"]])(
    "must return a non-empty, well-formed string, and not %o",
    (value) => {
      const limits = defineLimits({ "api.example.org": { rate: "1/s", key: () => value as string } });
      expect(() => limits.match("https://api.example.org/")).toThrow(
        expect.objectContaining({
          code: "ERR_INVALID_CALL",
          message: expect.stringMatching(/"api\.example\.org".*(expected a key|non-empty string|well-formed)/),
        }),
      );
    },
  );

  it("names the function in the error when it throws, and keeps what it threw", () => {
    const cause = new TypeError("no tenant");
    const key = (): never => {
      throw cause;
    };
    const limits = defineLimits({ "api.example.org": { rate: "1/s", key } });
    const message = "The `key` function of the limit failed: no tenant";
    expect(() => limits.match("https://api.example.org/")).toThrow(
      expect.objectContaining({ code: "ERR_INVALID_CALL", message, cause }),
    );
  });

  it("cannot change the URL of the caller", () => {
    const limits = defineLimits({ a: { rate: "1/s", key: ({ url }) => (url.pathname = "/changed") } });
    const url = new URL("https://a/path");
    limits.match(url);
    expect(url.pathname).toBe("/path");
  });
});
