/** `spillway/undici`: every request of a process is throttled, without a change to its code. */
import { createClient, defineLimits } from "spillway";
import { throttle } from "spillway/undici";
import { expect, test } from "vitest";
import { startChild } from "../helpers/child.js";
import { redisUrl, uniquePrefix } from "../helpers/redis.js";

test("a global dispatcher throttles fetch and request, refuses, and gives back the places of what is aborted", async () => {
  await using child = startChild("undici.mjs", { args: [redisUrl(), uniquePrefix()] });
  const { said } = await child.next<{ said: Record<string, unknown> }>("said", { timeout: 15_000 });
  expect(said).toMatchObject({
    echoed: 6,
    inFlight: 0,
    unknown: ["ERR_UNKNOWN_HOST", "ERR_UNKNOWN_HOST"],
    aborted: "AbortError",
    depth: 0,
    full: 2,
  });
  // 50.5 ms apart, as far as arrivals tell.
  expect(said["gap"]).toBeGreaterThan(20);
  expect(await child.exited).toEqual({ code: 0, signal: null });
});

test("takes only what createClient returned", async () => {
  await using client = createClient({ redis: redisUrl(), limits: defineLimits({ a: { rate: "1/s" } }) });
  expect(() => throttle({ ...client })).toThrow("createClient");
});
