import { Redis } from "ioredis";
import type { LimitOptions } from "spillway";
import { type Child, startChild } from "../helpers/child.js";
import { redisUrl } from "../helpers/redis.js";
import type { Recording, UpstreamThread } from "../helpers/upstream.js";
import { bounded, until } from "../helpers/wait.js";

/** A child process with a client, a worker, or both: see test/children/node.mjs. */
export interface Node extends Child {
  /** The name by which Redis knows it. */
  readonly address: string;
  /** Has it do something, and waits until it is done. */
  ask<T extends object = object>(type: string, details?: object, timeout?: number): Promise<T>;
  /** Closes what it holds; the process must then end by itself within a second, quietly. Returns how long close took. */
  end(): Promise<{ closeMs: number; exitMs: number }>;
}

export interface NodeSetup {
  readonly prefix: string;
  readonly limits: Record<string, LimitOptions>;
  /** A URL, or the nodes of a cluster. */
  readonly redis?: string | readonly { host: string; port: number }[];
  readonly worker?: { concurrency?: number; lockDuration?: string; closeTimeout?: string };
}

export interface Ends {
  readonly ends: Readonly<Record<string, number>>;
  readonly errors: readonly string[];
  /** The numbers of those that did not end well. */
  readonly failed: readonly number[];
  /** The call that took longest, in ms. */
  readonly slowest: number;
}

export async function startNode(role: "client" | "worker" | "both", setup: NodeSetup): Promise<Node> {
  const child = startChild("node.mjs", { args: [JSON.stringify({ redis: redisUrl(), ...setup, role })] });
  const { address } = await child.next<{ address: string }>("ready");
  const node: Node = Object.assign(child, {
    address,
    async ask<T extends object>(type: string, details: object = {}, timeout = 60_000): Promise<T> {
      child.send({ ...details, type });
      const failed = child.next<{ error: string }>("failed", { timeout: timeout + 1_000 }).then(({ error }) => {
        throw new Error(`${type}: ${error}`);
      });
      // Whichever does not come is of no interest.
      failed.catch(() => {});
      return Promise.race([child.next<T>(`${type}-done`, { timeout }), failed]);
    },
    async end() {
      const began = performance.now();
      await node.ask("close", {}, 40_000);
      const closed = performance.now();
      const exit = bounded(child.exited, 8_000, `a closed ${role} to end by itself`);
      const { code } = await exit.catch((error: unknown) => {
        throw new Error(`${String(error)}. ${child.output()}`);
      });
      if (code !== 0 || child.output() !== "") throw new Error(`${role} ended with ${code}: ${child.output()}`);
      return { closeMs: closed - began, exitMs: performance.now() - closed };
    },
  });
  return node;
}

/** A process that is closed ends at once; on a busy machine, within this. No timer worth the name is shorter. */
export const ENDED_MS = 1_800;

/** Several nodes at once. */
export async function startNodes(count: number, role: "client" | "worker" | "both", setup: NodeSetup): Promise<Node[]> {
  return Promise.all(Array.from({ length: count }, () => startNode(role, setup)));
}

export const endAll = async (nodes: readonly Node[]): Promise<void> => {
  await Promise.all(nodes.map((node) => node.end()));
};

/** Waits until so many requests have arrived. */
export async function arrived(upstream: UpstreamThread, count: number, timeout = 30_000): Promise<void> {
  const seen = async () => (await upstream.read()).arrivals.length >= count;
  await until(seen, { timeout, interval: 5, what: `${count} arrivals` });
}

/** How many calls ended in each way, over several processes. */
export function total(all: readonly Ends[]): Record<string, number> {
  const sum: Record<string, number> = {};
  for (const { ends } of all) for (const [end, count] of Object.entries(ends)) sum[end] = (sum[end] ?? 0) + count;
  return sum;
}

/** What each arrival was numbered with (`?n=`), in order of arrival. */
export const numbers = ({ arrivals }: Recording): string[] =>
  arrivals.map(({ url }) => new URL(url, "http://x").searchParams.get("n") ?? "");

/** By how many places a call came too early or too late, at most, when they were numbered from 0 on. */
export const displacement = (seen: Recording): number =>
  Math.max(...numbers(seen).map((n, place) => Math.abs(Number(n) - place)));

/** Starts a second that were counted from the first arrival to the last. */
export const average = ({ arrivals }: Recording): number => {
  const [first, last] = [arrivals[0]?.at ?? 0, arrivals.at(-1)?.at ?? 0];
  return ((arrivals.length - 1) * 1_000) / (last - first);
};

/** A plain connection, for looking at keys. */
export function look(url: string = redisUrl()): Redis & AsyncDisposable {
  const redis = new Redis(url, { maxRetriesPerRequest: 1 });
  redis.on("error", () => {});
  return Object.assign(redis, { [Symbol.asyncDispose]: async () => redis.disconnect() });
}
