import { createClient, defineLimits, type LimitOptions } from "spillway";
import { expect, test, vi } from "vitest";
import { redisUrl, uniquePrefix } from "../helpers/redis.js";
import { startUpstream, type Upstream } from "../helpers/upstream.js";

// Generous: only a hang should end a test on a busy machine.
vi.setConfig({ testTimeout: 90_000 });

/** Sends calls one after the other to a server that fails twice for each; returns the keys that it saw, by call. */
async function keysOf(
  calls: readonly { readonly method: string; readonly id?: string; readonly headers?: Record<string, string> }[],
  options: Partial<LimitOptions> = { idempotency: true },
): Promise<(string | undefined)[][]> {
  const seen = new Map<string, (string | undefined)[]>();
  await using upstream: Upstream = await startUpstream({
    handler(request, response) {
      const keys = seen.get(request.url ?? "") ?? [];
      seen.set(request.url ?? "", keys);
      keys.push(request.headers["idempotency-key"]?.toString());
      response.writeHead(keys.length < 3 ? 503 : 200).end();
    },
  });
  const limits = defineLimits({ [upstream.host]: { rate: "200/s", retry: { minBackoff: "10ms" }, ...options } });
  await using client = createClient({ redis: redisUrl(), prefix: uniquePrefix(), limits, worker: true });
  for (const [n, call] of calls.entries()) {
    const ticket = await client.enqueue(`${upstream.url}/${n}`, call);
    await ticket.result().catch(() => {});
  }
  return calls.map((_call, n) => seen.get(`/${n}`) ?? []);
}

test("a POST gets a key of its own, the same for all its attempts, and is repeated for it", async () => {
  const [one = [], other = []] = await keysOf([{ method: "POST" }, { method: "post" }]);
  expect(one).toHaveLength(3);
  expect(one[0]).toMatch(/^[0-9a-z]{16,}$/);
  expect(new Set(one).size).toBe(1);
  expect(other).toHaveLength(3);
  expect(other[0]).not.toBe(one[0]);
});

test("the key is the id that the caller has given", async () => {
  expect(await keysOf([{ method: "PATCH", id: "order-17" }])).toEqual([["order-17", "order-17", "order-17"]]);
});

test("a key of the caller's own wins", async () => {
  expect(await keysOf([{ method: "POST", id: "order-17", headers: { "Idempotency-Key": "mine" } }])).toEqual([
    ["mine", "mine", "mine"],
  ]);
});

test("idempotent methods get none, and are repeated", async () => {
  const none = [undefined, undefined, undefined];
  expect(await keysOf([{ method: "GET" }, { method: "PUT" }, { method: "delete" }])).toEqual([none, none, none]);
});

test("without the option there is none, and a POST is not repeated", async () => {
  expect(await keysOf([{ method: "POST", id: "order-17" }], {})).toEqual([[undefined]]);
});
