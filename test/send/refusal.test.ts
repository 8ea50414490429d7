import { expect, test, vi } from "vitest";
import { uniquePrefix } from "../helpers/redis.js";
import { Recording, startUpstreamThread, type UpstreamThread } from "../helpers/upstream.js";
import { endAll, type Ends, type Node, numbers, startNodes, total } from "./nodes.js";

// Generous: only a hang should end a test on a busy machine.
vi.setConfig({ testTimeout: 60_000 });

/** Calls in all; more than one window of the server, and not more than two. */
const COUNT = 36;
const WINDOW = { max: 20, perMs: 2_000, retryAfter: 2 };
const LATENCY_MS = 100;
/** What was about to start when a refusal was answered still arrives; on a busy machine, so much later at most. */
const ON_THE_WAY_MS = 300;

/** Two processes, whose limit is far wider than that of the server. */
async function refuse(run: (nodes: Node[], upstream: UpstreamThread) => Promise<void>): Promise<Recording> {
  await using upstream = await startUpstreamThread({ limit: WINDOW, latencyMs: LATENCY_MS });
  const limits = { [upstream.host]: { rate: "50/s" } } as const;
  const nodes = await startNodes(2, "both", { prefix: uniquePrefix(), limits });
  await run(nodes, upstream);
  await endAll(nodes);
  // Before the upstream ends.
  return await upstream.read();
}

/** Expects nothing for two seconds from when the first 429 was answered. Returns what arrived before and after. */
function expectPause(seen: Recording): { before: Recording; after: Recording } {
  const { arrivals } = seen;
  const first = arrivals.find(({ refused }) => refused)?.at ?? Number.NaN;
  expect(first).toBeGreaterThan(0);
  const answered = first + LATENCY_MS;
  const before = arrivals.filter(({ at }) => at <= answered + ON_THE_WAY_MS);
  const after = arrivals.filter(({ at }) => at > answered + ON_THE_WAY_MS);
  expect(after[0]?.at).toBeGreaterThan(answered + WINDOW.retryAfter * 1_000 - 1);
  // Each 429 went to a call that was in flight at that moment: sent, and not answered.
  const inFlight = before.filter(({ at }) => at >= first);
  expect(seen.refused).toBeLessThanOrEqual(inFlight.length);
  expect(after.filter(({ refused }) => refused)).toEqual([]);
  return { before: new Recording(before), after: new Recording(after) };
}

test("after one 429 no process fetches for as long as it asks, then in order", async () => {
  const seen = await refuse(async (nodes, { url }) => {
    const tags = ["a", "b"];
    // So that both are ready when it begins.
    for (const node of nodes) await node.ask<Ends>("fetch", { url, count: 1, width: 1, tag: "w" });
    const half = { url, count: COUNT / 2, width: COUNT / 4 };
    const ends = await Promise.all(nodes.map((node, i) => node.ask<Ends>("fetch", { ...half, tag: tags[i] })));
    expect(total(ends)).toEqual({ ok: COUNT });
  });
  const { before, after } = expectPause(seen);
  for (const tag of ["a", "b"]) {
    const mine = (recording: Recording): string[] => numbers(recording).filter((n) => n.startsWith(tag));
    // Nobody sends again what fetch has answered: each process's calls arrive as it made them. (Not so the first ones,
    // each of which has to wait for a connection.)
    const then = mine(after).map((n) => Number(n.slice(1)));
    expect(then).toEqual(then.toSorted((a, b) => a - b));
    expect(new Set(mine(seen)).size).toBe(COUNT / 2);
    // Both were sending, and both stopped.
    expect(mine(before)).not.toEqual([]);
    expect(mine(after)).not.toEqual([]);
  }
});

test("after one 429 no worker sends for as long as it asks, then in order", async () => {
  const seen = await refuse(async (nodes, { url }) => {
    const ends = await nodes[0]?.ask<Ends>("deliver", { url, count: COUNT });
    expect(ends?.ends).toEqual({ ok: COUNT });
  });
  const { before, after } = expectPause(seen);
  const refused = numbers(new Recording(before.arrivals.filter((arrival) => arrival.refused)));
  const sent = numbers(after).map(Number);
  // First those that were refused, then those that have waited behind them; else they would be displaced by some seven
  // places. Of two workers, one may overtake the other by the calls that it holds, and retry.test.ts is about one.
  const expected = Array.from({ length: COUNT }, (_, i) => i).filter((i) => sent.includes(i));
  expect(sent.length).toBe(expected.length);
  expect(refused.every((n) => sent.includes(Number(n)))).toBe(true);
  const displaced = sent.map((n, i) => Math.abs(expected.indexOf(n) - i));
  expect(displaced.reduce((sum, by) => sum + by, 0) / sent.length).toBeLessThan(3);
});
