import { Redis } from "ioredis";
import { afterAll, beforeAll, expect, test } from "vitest";
import { defineLimits } from "spillway";
import type { BucketRef } from "../../dist/limits/define.js";
import { Reporter } from "../../dist/observe/events.js";
import { Keeper } from "../../dist/redis/keeper.js";
import { Session } from "../../dist/redis/session.js";
import { redisUrl, uniquePrefix } from "../helpers/redis.js";
import { until } from "../helpers/wait.js";

const LEASE_MS = 60_000;
const limits = defineLimits({ test: { rate: "1000/s", concurrency: 5 }, other: { rate: "1/s" } });

interface Process extends AsyncDisposable {
  readonly session: Session;
  readonly keeper: Keeper;
  readonly warnings: Error[];
  readonly ref: BucketRef;
  key(suffix: string): string;
}

function start(): Process {
  const report = new Reporter();
  const warnings: Error[] = [];
  report.events.on("warning", (warning) => warnings.push(warning));
  const session = new Session({ redis: redisUrl(), prefix: uniquePrefix(), limits }, report);
  const keeper = new Keeper(session, LEASE_MS);
  const ref = limits.resolve("test");
  const close = async (): Promise<void> => {
    keeper.close();
    await session.close();
  };
  const key = (suffix: string): string => `${session.prefix}:{${ref.bucket}}:${suffix}`;
  return { session, keeper, warnings, ref, key, [Symbol.asyncDispose]: close };
}

let redis: Redis;
beforeAll(() => {
  redis = new Redis(redisUrl());
});
afterAll(() => redis.disconnect());

test("renews leases, locks and flights, each only where it still is", async () => {
  await using here = start();
  const { keeper, ref, key } = here;
  await redis.hset(key("waiting"), "name", "permit");
  await redis.set(key("held:lock"), "token", "PX", 5000);
  await redis.set(key("taken:lock"), "another", "PX", 5000);
  await redis.sadd(key("stalled"), "held", "taken");
  await redis.zadd(key("inflight"), 1, "flying", 1, "held");
  keeper.permit(ref, "waiting", () => expect.unreachable());
  keeper.flight(ref, "flying");
  keeper.flight(ref, "landed");
  keeper.lock(ref, "held", "token");
  keeper.lock(ref, "taken", "token");
  keeper.renewAll();
  await until(() => here.warnings.length > 0);

  expect(here.warnings.map(({ message }) => message)).toEqual([expect.stringContaining("taken")]);
  expect(await redis.pttl(key("held:lock"))).toBeGreaterThan(LEASE_MS / 2);
  expect(await redis.pttl(key("taken:lock"))).toBeLessThanOrEqual(5000);
  expect(await redis.smembers(key("stalled"))).toEqual(["taken"]);
  expect(await redis.zrange(key("inflight"), 0, "-1")).toEqual(["flying", "held"]);
  const now = here.session.clock.now();
  for (const [set, id] of [
    ["inflight", "flying"],
    ["inflight", "held"],
    ["leases", here.session.address],
  ] as const) {
    expect(Number(await redis.zscore(key(set), id))).toBeGreaterThan(now + (LEASE_MS * 1000) / 2);
  }
});

test("tells of a permit that Redis does not know any more, and of no other", async () => {
  await using here = start();
  const { keeper, ref, key } = here;
  await redis.hset(key("known"), "name", "permit");
  const missing: string[] = [];
  for (const id of ["known", "lost", "withdrawn"]) {
    const withdraw = keeper.permit(ref, id, () => missing.push(id));
    if (id === "withdrawn") withdraw();
  }
  keeper.renewAll();
  await until(() => missing.length > 0);
  expect(missing).toEqual(["lost"]);
});

test("asks nothing of Redis once nothing is held", async () => {
  await using here = start();
  const { keeper, ref, key } = here;
  const other = limits.resolve("other");
  const ends = [keeper.permit(ref, "a", () => {}), keeper.flight(ref, "b"), keeper.lock(ref, "c", "token")];
  keeper.flight(other, "d");
  for (const end of ends) end();
  keeper.renewAll();
  const renewed = `${here.session.prefix}:{${other.bucket}}:gate`;
  await until(async () => (await redis.exists(renewed)) === 1);
  expect(await redis.exists(key("gate"))).toBe(0);
});

test("what has ended twice does not end what has begun since", async () => {
  await using here = start();
  const { keeper, ref, key } = here;
  const end = keeper.flight(ref, "first");
  end();
  keeper.flight(ref, "second");
  end();
  await redis.zadd(key("inflight"), 1, "second");
  keeper.renewAll();
  await until(async () => Number(await redis.zscore(key("inflight"), "second")) > 1);
});
