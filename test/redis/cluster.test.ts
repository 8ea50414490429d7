import { Redis } from "ioredis";
import { createClient, defineLimits } from "spillway";
import { expect, test, vi } from "vitest";
import { hasNativeRedis, startCluster, uniquePrefix } from "../helpers/redis.js";

// Generous: only a hang should end a test on a busy machine.
vi.setConfig({ testTimeout: 90_000 });

const hosts = (round: string): string[] => Array.from({ length: 30 }, (_, i) => `${round}${i}.example.com`);

test.skipIf(!hasNativeRedis)(
  "nodes of a cluster that have lost some of the scripts get them from the first call",
  async () => {
    await using cluster = await startCluster();
    const redis = new Redis.Cluster([...cluster.startup]);
    const limits = defineLimits({ "*": { rate: "100/s" } });
    await using client = createClient({ redis, prefix: uniquePrefix(), limits });
    const stats = (round: string): Promise<object[]> =>
      Promise.all(hosts(round).map((host) => client.limit(host).stats()));
    await stats("known");
    for (const round of ["a", "b", "c", "d"]) {
      await Promise.all(redis.nodes("master").map((node) => node.script("FLUSH")));
      // These are declared: of all scripts, the nodes now know this one only.
      await stats("known");
      expect(await stats(round)).toHaveLength(30);
    }
    redis.disconnect();
  },
);
