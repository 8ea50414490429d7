import { readFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { Redis } from "ioredis";
import { createUsage, type Usage } from "spillway/limiters";
import { afterAll, describe, expect, test } from "vitest";
import { redisUrl, uniquePrefix } from "../helpers/redis.js";

const T0 = 1_800_000_000_000;
const prefix = uniquePrefix();
const opened: Usage[] = [];
let shapes = 0;

function usageOf(span: number, interval: number): Usage {
  const usage = createUsage(redisUrl(), { span, interval, action: `a${shapes++}`, prefix });
  opened.push(usage);
  return usage;
}

afterAll(async () => {
  await Promise.all(opened.map((usage) => usage.close()));
});

describe("counts", () => {
  test("what was added in the running interval and so many before it", async () => {
    const usage = usageOf(60_000, 1000);
    await usage.add("s", 1, { at: T0 });
    await usage.add("s", 2, { at: T0 + 999 });
    await usage.add("s", 4, { at: T0 + 1000 });
    const count = async (seconds: number, at: number) => usage.count("s", seconds, { at: T0 + at });
    expect(await count(1, 999)).toBe(3);
    expect(await count(1, 1000)).toBe(4);
    expect(await count(2, 1999)).toBe(7);
    expect(await count(2, 2000)).toBe(4);
    expect(await count(0.5, 1000)).toBe(4);
    expect(await count(3600, 59_999)).toBe(7);
    expect(await count(60, 60_000)).toBe(4);
    expect(await usage.count("other", 60, { at: T0 })).toBe(0);
    expect(await usage.addCount("s", 1, { at: T0 + 1500, n: 3 })).toBe(7);
    await usage.reset("s");
    expect(await count(60, 1500)).toBe(0);
  });

  test("not one interval more where a time is no whole number of seconds", async () => {
    const usage = usageOf(60_000, 100);
    // In binary, this many seconds times 1000 is 16100.000000000002.
    await usage.add("s", 1, { at: T0 - 16_100 });
    await usage.add("s", 2, { at: T0 - 16_000 });
    expect(await usage.count("s", 16.1, { at: T0 })).toBe(2);
  });

  test.each<[string, (usage: Usage) => Promise<unknown>]>([
    ["a text", (usage) => usage.add("s", "3" as never)],
    ["options in place of a number", (usage) => usage.add("s", { at: T0 } as never)],
    ["a number in place of options", (usage) => usage.addCount("s", 60, 3 as never)],
    ["a misspelt option", (usage) => usage.addCount("s", 60, { m: 3 } as never)],
    ["a number too many", (usage) => usage.count("s", 60, { n: 3 } as never)],
  ])("nothing that is told by %s", async (_name, wrong) => {
    const usage = usageOf(60_000, 1000);
    await expect(wrong(usage)).rejects.toMatchObject({ code: "ERR_INVALID_CALL" });
    expect(await usage.count("s", 60)).toBe(0);
  });

  test("of a time that is none, is refused", async () => {
    // @ts-expect-error no number
    await expect(usageOf(60_000, 1000).count("s", "1m")).rejects.toThrow("a number of seconds above 0");
    await expect(usageOf(60_000, 1000).count("s", 0)).rejects.toMatchObject({ code: "ERR_INVALID_LIMIT" });
  });

  test("by the clock of Redis, where no other is given", async () => {
    const usage = usageOf(3_600_000, 1000);
    expect(await usage.addCount("s", 3600)).toBe(1);
    expect(await usage.addCount("s", 3600)).toBe(2);
  });

  test("actions, subjects and rings of another shape are apart", async () => {
    const at = T0;
    const [a, b] = [usageOf(60_000, 1000), usageOf(60_000, 1000)];
    const other = createUsage(redisUrl(), { span: 60_000, interval: 2000, action: `a${shapes - 2}`, prefix });
    opened.push(other);
    await a.add("x:{y}", 1, { at });
    expect(await a.count("x:{y}", 60, { at })).toBe(1);
    expect(await b.count("x:{y}", 60, { at })).toBe(0);
    expect(await other.count("x:{y}", 60, { at })).toBe(0);
  });

  test("in constant space, which goes by itself", async () => {
    const usage = usageOf(10_000, 1000);
    for (let i = 0; i < 50; i++) await usage.add("space", 1, { at: T0 + i * 700 });
    const redis = new Redis(redisUrl());
    try {
      const key = `${prefix}:usage:{space}:a${shapes - 1}:1000:10`;
      expect(await redis.hlen(key)).toBe(10);
      expect(await redis.pttl(key)).toBeGreaterThan(10_000);
    } finally {
      redis.disconnect();
    }
  });
});

/** How many there are, by definition. */
function naive(adds: readonly { at: number; n: number }[], interval: number, intervals: number, now: number): number {
  const last = Math.floor(now / interval);
  return adds
    .filter(({ at }) => Math.floor(at / interval) > last - intervals && Math.floor(at / interval) <= last)
    .reduce((sum, { n }) => sum + n, 0);
}

test("any history in order of time: as many as there were", async () => {
  const step = fc.record({
    after: fc.nat(4000),
    n: fc.integer({ min: 1, max: 5 }),
    seconds: fc.integer({ min: 1, max: 9 }),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 25 }), async (steps) => {
      const usage = usageOf(8000, 1000);
      const adds: { at: number; n: number }[] = [];
      let at = T0;
      for (const { after, n, seconds } of steps) {
        at += after;
        adds.push({ at, n });
        expect(await usage.addCount("s", seconds, { at, n })).toBe(naive(adds, 1000, Math.min(8, seconds), at));
      }
    }),
    { numRuns: 30, endOnFailure: true },
  );
});

test("a clock that goes back counts where it can, and erases nothing", async () => {
  const usage = usageOf(10_000, 1000);
  await usage.add("s", 1, { at: T0 + 9000 });
  await usage.add("s", 1, { at: T0 + 8000 });
  expect(await usage.count("s", 10, { at: T0 + 9000 })).toBe(2);
  // Before the ring begins: the field is that of a newer interval.
  await usage.add("s", 1, { at: T0 - 1000 });
  expect(await usage.count("s", 10, { at: T0 + 9000 })).toBe(2);
});

test.each([
  [{ span: 0 }, "usage.span"],
  [{ span: "1d", interval: "1s" }, "usage.span"],
  [{ span: "1h", interval: 0 }, "usage.interval"],
  [{ span: "1h", action: "" }, "usage.action"],
  [{ span: "1h", per: "1s" }, "usage.per"],
])("wrong options are refused: %o", (options, option) => {
  expect(() => createUsage(undefined, options as never)).toThrow(
    expect.objectContaining({ code: "ERR_INVALID_LIMIT", option }),
  );
});

interface Step {
  readonly atMs: number;
  readonly op: string;
  readonly args: readonly unknown[];
  readonly expect: unknown;
}
interface Sequence {
  readonly name: string;
  readonly params: { readonly options?: { readonly bucket_span: number; readonly bucket_interval: number } };
  readonly steps: readonly Step[];
}

/** Where the original counts what was not there, or forgets what was: ours is right by definition. */
const DEFECTS: Readonly<Record<string, string>> = {
  "steady-traffic-full-window-loses-two-oldest-buckets": "the two buckets ahead are cleared",
  "interval-beyond-twice-span-uses-negative-fields": "fields of negative numbers, and of an earlier revolution",
  "ghost-counts-after-idle-revolution": "what an earlier revolution left is counted again",
  "default-expiry-twice-the-span": "the same",
  "expiry-below-span-limits-ghosts-of-idle-subjects": "it expires before its span is over",
  "span-not-multiple-of-interval-has-orphan-bucket": "one bucket is never cleared",
  "clock-backwards": "what was counted in the meantime is erased",
};

describe("recorded sequences of redback", () => {
  const file = join(import.meta.dirname, "vectors", "redback-ratelimit.json");
  const sequences = JSON.parse(readFileSync(file, "utf8")) as Sequence[];

  test.each(sequences.map((sequence) => [sequence.name, sequence] as const))("%s", async (name, { params, steps }) => {
    const { bucket_span: span, bucket_interval: interval } = params.options ?? { bucket_span: 600, bucket_interval: 5 };
    const usage = usageOf(span * 1000, interval * 1000);
    const slots = Math.ceil(span / interval);
    const adds: { at: number; n: number }[] = [];
    const compared: (readonly [number, unknown])[] = [];
    for (const { atMs: at, op, args, expect: recorded } of steps) {
      const [subject, asked] = [String(args[0]), Number(args[1])];
      // The original counts one bucket more than asked; here, what it counts is what is asked.
      const intervals = Math.min(slots, Math.floor(asked / interval) + 1);
      if (op === "add" || op === "addCount") adds.push({ at, n: 1 });
      if (op === "add") await usage.add(subject, 1, { at });
      const seconds = intervals * interval;
      if (op === "count" || op === "addCount") {
        const ours = await (op === "count"
          ? usage.count(subject, seconds, { at })
          : usage.addCount(subject, seconds, { at }));
        expect(ours).toBe(naive(adds, interval * 1000, intervals, at));
        compared.push([ours, recorded]);
      }
    }
    const same = compared.every(([ours, recorded]) => ours === recorded);
    expect(same).toBe(DEFECTS[name] === undefined);
  });
});
