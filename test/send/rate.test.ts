import { describe, expect, test, vi } from "vitest";
import { uniquePrefix } from "../helpers/redis.js";
import { startUpstreamThread } from "../helpers/upstream.js";
import { arrived, average, endAll, type Ends, numbers, startNode, startNodes, total } from "./nodes.js";

// Generous: only a hang should end a test on a busy machine.
vi.setConfig({ testTimeout: 90_000 });

// Arrivals are counted at the server, in any window, not only in those that a clock happens to begin. What lies between
// a start here and its arrival there is not for the gate to answer for; on a machine with more processes than
// processors that can take far longer than the 10 ms which `lateness` allows by default, so these tests allow more.
const lateness = "150ms";

describe.each([
  ["100/s", 100, 450],
  ["10/s", 10, 45],
] as const)("three processes at %s", (rate, most, count) => {
  test("never more than that arrive in any second, through all doors", async () => {
    await using upstream = await startUpstreamThread();
    const limits = { [upstream.host]: { rate, lateness } } as const;
    const nodes = await startNodes(3, "both", { prefix: uniquePrefix(), limits });
    const each = count / 3;
    const all = await Promise.all([
      nodes[0]?.ask<Ends>("fetch", { url: upstream.url, count: Math.floor(each), tag: "f" }),
      nodes[1]?.ask<Ends>("deliver", { url: upstream.url, count: Math.floor(each), tag: "d" }),
      nodes[2]?.ask<Ends>("mix", { url: upstream.url, limit: upstream.host, count: Math.floor(each), tag: "m" }),
    ]);
    const { ok = 0, ...others } = total(all.filter((ends) => ends !== undefined));
    expect(others).toEqual({});
    await arrived(upstream, ok);
    await endAll(nodes);
    const seen = await upstream.read();
    expect(seen.arrivals.length).toBe(ok);
    expect(new Set(numbers(seen)).size).toBe(ok);
    expect(seen.maxInWindow(1_000)).toBeLessThanOrEqual(most);
    // What the average is on a quiet machine, the bench tells.
    expect(average(seen)).toBeGreaterThan(0.5 * most);
  });
});

test("lateness 0 keeps the exact rate on average", async () => {
  await using upstream = await startUpstreamThread();
  const nodes = await startNodes(2, "both", {
    prefix: uniquePrefix(),
    limits: { [upstream.host]: { rate: "100/s", lateness: 0 } },
  });
  const all = await Promise.all(
    nodes.map((node, i) => node.ask<Ends>("fetch", { url: upstream.url, count: 200, tag: `${i}-` })),
  );
  expect(total(all)).toEqual({ ok: 400 });
  await endAll(nodes);
  const seen = await upstream.read();
  expect(average(seen)).toBeGreaterThan(50);
  // The exact figure is the bench's. Four seconds, of which the first request may take a tenth to arrive.
  expect(average(seen)).toBeLessThan(105);
});

test("2500/s in one process: never more in any second, and all arrive", async () => {
  await using upstream = await startUpstreamThread();
  const node = await startNode("both", {
    prefix: uniquePrefix(),
    limits: { [upstream.host]: { rate: "2500/s", capacity: 10_000, lateness } },
  });
  const { ends } = await node.ask<Ends>("deliver", { url: upstream.url, count: 4_000, width: 500 });
  expect(ends).toEqual({ ok: 4_000 });
  await node.end();
  const seen = await upstream.read();
  expect(new Set(numbers(seen)).size).toBe(4_000);
  expect(seen.maxInWindow(1_000)).toBeLessThanOrEqual(2_500);
});

test("further windows hold as well", async () => {
  await using upstream = await startUpstreamThread();
  const limits = { [upstream.host]: { rate: "100/s", rules: ["5/500ms", "12/2s"], lateness } } as const;
  const nodes = await startNodes(3, "both", { prefix: uniquePrefix(), limits });
  const all = await Promise.all([
    nodes[0]?.ask<Ends>("fetch", { url: upstream.url, count: 9 }),
    nodes[1]?.ask<Ends>("deliver", { url: upstream.url, count: 9 }),
    nodes[2]?.ask<Ends>("fetch", { url: upstream.url, count: 9 }),
  ]);
  expect(total(all.filter((ends) => ends !== undefined))).toEqual({ ok: 27 });
  await endAll(nodes);
  const seen = await upstream.read();
  expect(seen.maxInWindow(500)).toBeLessThanOrEqual(5);
  expect(seen.maxInWindow(2_000)).toBeLessThanOrEqual(12);
  // The second rule alone bounds the whole: 27 calls take more than two of its windows.
  expect(average(seen)).toBeGreaterThan(2);
  expect(average(seen)).toBeLessThan(7);
});

test("an event loop that is blocked again and again releases no burst", async () => {
  await using upstream = await startUpstreamThread();
  const nodes = await startNodes(2, "both", {
    prefix: uniquePrefix(),
    limits: { [upstream.host]: { rate: "100/s", lateness } },
  });
  const blocked = nodes.map((node) => node.ask("block", { ms: 300, times: 5 }));
  const all = await Promise.all([
    nodes[0]?.ask<Ends>("deliver", { url: upstream.url, count: 150, tag: "d" }),
    nodes[1]?.ask<Ends>("fetch", { url: upstream.url, count: 150, tag: "f" }),
  ]);
  await Promise.all(blocked);
  expect(total(all.filter((ends) => ends !== undefined))).toEqual({ ok: 300 });
  await endAll(nodes);
  const seen = await upstream.read();
  expect(seen.maxInWindow(1_000)).toBeLessThanOrEqual(100);
  // A plain catch-up would release 30 at once, and 60 from both.
  expect(seen.maxInWindow(20)).toBeLessThanOrEqual(15);
});
