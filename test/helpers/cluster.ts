import { Redis } from "ioredis";
import { type NativeRedis, nativeRedis } from "./native-redis.js";
import { until } from "./wait.js";

const SLOTS = 16_384;

/** Three masters without replicas, on loopback. */
export interface TestCluster extends AsyncDisposable {
  readonly nodes: readonly NativeRedis[];
  /** What `new Redis.Cluster(…)` takes. */
  readonly startup: readonly { host: string; port: number }[];
  stop(): Promise<void>;
}

/** Starts a cluster and waits until every node says that it is whole. */
export async function startCluster(): Promise<TestCluster> {
  const args = ["--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", "3000"];
  const nodes = await Promise.all([1, 2, 3].map(() => nativeRedis(args)));
  const stop = async () => {
    await Promise.all(nodes.map((node) => node.stop()));
  };
  try {
    await join(nodes);
  } catch (error) {
    await stop();
    throw error;
  }
  const startup = nodes.map(({ port }) => ({ host: "127.0.0.1", port }));
  return { nodes, startup, stop, [Symbol.asyncDispose]: stop };
}

async function join(nodes: readonly NativeRedis[]): Promise<void> {
  const clients = nodes.map(({ url }) => new Redis(url));
  try {
    await Promise.all(
      clients.map(async (client, index) => {
        const from = Math.floor((SLOTS * index) / clients.length);
        const to = Math.floor((SLOTS * (index + 1)) / clients.length);
        // Distinct from the start, so that the nodes need not settle a collision first.
        await client.call("CLUSTER", "SET-CONFIG-EPOCH", index + 1);
        await client.call("CLUSTER", "ADDSLOTS", ...Array.from({ length: to - from }, (_, slot) => from + slot));
      }),
    );
    for (const client of clients) {
      for (const { port } of nodes) {
        if (client.options.port !== port) await client.call("CLUSTER", "MEET", "127.0.0.1", port);
      }
    }
    const isWhole = async (client: Redis) => {
      const info = String(await client.call("CLUSTER", "INFO"));
      return info.includes("cluster_state:ok") && info.includes(`cluster_slots_ok:${SLOTS}`);
    };
    await until(async () => (await Promise.all(clients.map(isWhole))).every(Boolean), {
      timeout: 20_000,
      interval: 50,
      what: "cluster_state:ok on every node",
    });
  } finally {
    for (const client of clients) client.disconnect();
  }
}
