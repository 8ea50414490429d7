import { expect, test, vi } from "vitest";
import { hasNativeRedis, startCluster, uniquePrefix } from "../helpers/redis.js";
import { startUpstreamThread } from "../helpers/upstream.js";
import { arrived, endAll, type Ends, numbers, startNode, startNodes } from "./nodes.js";

// Generous: only a hang should end a test on a busy machine.
vi.setConfig({ testTimeout: 90_000 });

test.skipIf(!hasNativeRedis)(
  "a Redis Cluster of three masters serves all doors, results and controls of several buckets",
  async () => {
    await using cluster = await startCluster();
    await using a = await startUpstreamThread();
    await using b = await startUpstreamThread();
    await using c = await startUpstreamThread();
    const upstreams = [a, b, c];
    // Each host has its own bucket, and each bucket its own place in the cluster.
    const limits = { "*": { rate: "100/s", lateness: "50ms" }, sdk: { rate: "100/s" } } as const;
    const setup = { redis: cluster.startup, prefix: uniquePrefix(), limits };
    const workers = await startNodes(2, "worker", setup);
    const client = await startNode("client", setup);

    const all = await Promise.all([
      ...upstreams.map(({ url }) => client.ask<Ends>("fetch", { url, count: 15, tag: "f" })),
      ...upstreams.map(({ url }) => client.ask<Ends>("deliver", { url, count: 15, tag: "d" })),
      client.ask<Ends>("run", { limit: "sdk", count: 15 }),
    ]);
    expect(all.map(({ ends }) => ends)).toEqual(Array.from({ length: 7 }, () => ({ ok: 15 })));
    for (const upstream of upstreams) expect(new Set(numbers(await upstream.read())).size).toBe(30);

    // Enqueued now, awaited later; one cancelled while the gate is closed; then a new rate.
    await client.ask("limit", { limit: a.host, method: "pause", args: ["1h", "test"] });
    await client.ask("enqueue", { url: a.url, count: 3, tag: "e" });
    const ids = client.messages
      .filter(({ type }) => type === "ticket")
      .map((message) => (message as unknown as { id: string }).id);
    expect(await client.ask("cancel", { id: ids[1] })).toMatchObject({ cancelled: true });
    await client.ask("limit", { limit: a.host, method: "set", args: [{ rate: "7/s" }] });
    const stats = { limit: a.host, method: "stats" };
    expect((await client.ask<{ value: object }>("limit", stats)).value).toMatchObject({
      waiting: 2,
      rate: { limit: 7, perMs: 1_000 },
      paused: { reason: "test" },
    });
    await client.ask("limit", { limit: a.host, method: "resume" });
    const { outcomes } = await client.ask<{ outcomes: object[] }>("outcomes", { ids });
    expect(outcomes).toMatchObject([{ status: 200 }, { code: "ERR_CANCELLED" }, { status: 200 }]);
    await arrived(a, 32);
    await endAll([client, ...workers]);
  },
);
