import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { bucketName, limitPart, MAX_BUCKET_LENGTH, parseBucketName } from "../../dist/limits/bucket.js";

const CHARSET = /^[\x21-\x7e]+$/;
const FORBIDDEN = /[:{}\s]/;

const word = fc.oneof(
  fc.string({
    unit: fc.constantFrom("a", "b", "|", "%", "~", ":", "{", "}", " ", "7", "C", "ü", "\n", "\0", "\x7f"),
    minLength: 1,
  }),
  fc.string({ unit: "grapheme", minLength: 1 }),
  // So long that names are shortened, and alike but for their ends.
  fc.tuple(fc.integer({ min: 80, max: 220 }), fc.string({ maxLength: 3 })).map(([n, end]) => "l".repeat(n) + end),
);
const parts = fc.record({ limit: word, rest: fc.array(word, { maxLength: 2 }) });

describe("bucketName", () => {
  it.each<[string, string[], string]>([
    ["api.github.com", [], "api.github.com"],
    ["api.github.com/search", [], "api.github.com/search"],
    ["*.myshopify.com", ["shop1.myshopify.com"], "*.myshopify.com|shop1.myshopify.com"],
    ["*", ["localhost:8080", "tenant 7"], "*|localhost%3A8080|tenant%207"],
    ["[::1]", [], "[%3A%3A1]"],
    ["a", ["b"], "a|b"],
    ["a|b", [], "a%7Cb"],
    ["a%7Cb", [], "a%257Cb"],
    ["a", ["{x}~ü\n😀"], "a|%7Bx%7D%7E%C3%BC%0A%F0%9F%98%80"],
  ])("of %j and %j is %s", (limit, rest, name) => {
    expect(bucketName(limit, rest)).toBe(name);
    expect(parseBucketName(name)).toEqual({ limit: limitPart(limit), rest });
  });

  it("keeps a readable head and a hash where it would be too long", () => {
    const name = bucketName("api.github.com", ["k".repeat(200)]);
    expect(name).toMatch(/^api\.github\.com\|k{141}~[\w-]{43}$/);
    expect(name).toHaveLength(MAX_BUCKET_LENGTH);
    expect(bucketName("a", ["k".repeat(198)])).toBe(`a|${"k".repeat(198)}`);
    expect(parseBucketName(name)).toEqual({ limit: "api.github.com", rest: undefined });
  });

  it("never loses the limit, however long", () => {
    const limit = `a.example/${"p".repeat(300)}`;
    const name = bucketName(limit, ["k".repeat(300)]);
    expect(name.length).toBeLessThanOrEqual(MAX_BUCKET_LENGTH);
    expect(parseBucketName(name).limit).toBe(limitPart(limit));
    expect(limitPart(limit)).not.toBe(limitPart(`${limit}p`));
  });

  it("is printable ASCII without : { } and whitespace, and bounded", () => {
    fc.assert(
      fc.property(parts, ({ limit, rest }) => {
        const name = bucketName(limit, rest);
        expect(name).toMatch(CHARSET);
        expect(name).not.toMatch(FORBIDDEN);
        expect(name.length).toBeLessThanOrEqual(200);
      }),
      { numRuns: 2000 },
    );
  });

  it("is read back to the limit, and to the rest unless it was shortened", () => {
    let shortened = 0;
    fc.assert(
      fc.property(parts, ({ limit, rest }) => {
        const read = parseBucketName(bucketName(limit, rest));
        expect(read.limit).toBe(limitPart(limit));
        if (read.rest === undefined) shortened++;
        else expect(read.rest).toEqual(rest);
      }),
      { numRuns: 2000 },
    );
    expect(shortened).toBeGreaterThan(50);
    expect(shortened).toBeLessThan(1500);
  });

  it("is another one for other parts", () => {
    const seen = new Map<string, string>();
    fc.assert(
      fc.property(parts, ({ limit, rest }) => {
        const name = bucketName(limit, rest);
        const identity = JSON.stringify([limit, ...rest]);
        expect(seen.get(name) ?? identity).toBe(identity);
        seen.set(name, identity);
      }),
      { numRuns: 5000 },
    );
    expect(seen.size).toBeGreaterThan(2000);
  });
});

describe("parseBucketName", () => {
  it("takes a name that is none of ours", () => {
    expect(parseBucketName("")).toEqual({ limit: "", rest: [] });
    expect(parseBucketName("a|%zz")).toEqual({ limit: "a", rest: undefined });
  });
});
