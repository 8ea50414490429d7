import { describe, expect, test } from "vitest";
import { uniquePrefix } from "../helpers/redis.js";
import { startUpstreamThread } from "../helpers/upstream.js";
import { until } from "../helpers/wait.js";
import { average, endAll, type Ends, numbers, startNode, startNodes, total } from "./nodes.js";

// Arrivals are counted at the server, in any window, not only in those that a clock happens to begin. What lies between
// a start here and its arrival there is not for the gate to answer for; on a machine with more processes than
// processors that can take longer than the 10 ms which `lateness` allows by default, so these tests allow more.
const lateness = "60ms";

describe.each([
  ["100/s", 100, 450],
  ["10/s", 10, 45],
] as const)("three processes at %s", (rate, most, count) => {
  test("never more than that arrive in any second, through all doors", async () => {
    await using upstream = await startUpstreamThread();
    const limits = { [upstream.host]: { rate, lateness } };
    const nodes = await startNodes(3, "both", { prefix: uniquePrefix(), limits });
    const each = count / 3;
    const all = await Promise.all([
      nodes[0]?.ask<Ends>("fetch", { url: upstream.url, count: Math.floor(each), tag: "f" }),
      nodes[1]?.ask<Ends>("deliver", { url: upstream.url, count: Math.floor(each), tag: "d" }),
      nodes[2]?.ask<Ends>("mix", { url: upstream.url, limit: upstream.host, count: Math.floor(each), tag: "m" }),
    ]);
    const { ok = 0, ...others } = total(all.filter((ends) => ends !== undefined));
    expect(others).toEqual({});
    await until(async () => (await upstream.read()).arrivals.length >= ok, { what: "all arrivals" });
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
  expect(average(seen)).toBeGreaterThan(85);
  expect(average(seen)).toBeLessThan(100.7);
});

test("2500/s in one process: never more in any second, and all arrive", async () => {
  await using upstream = await startUpstreamThread();
  const node = await startNode("both", {
    prefix: uniquePrefix(),
    limits: { [upstream.host]: { rate: "2500/s", capacity: 10_000, lateness } },
  });
  const { ends } = await node.ask<Ends>("deliver", { url: upstream.url, count: 5_000, width: 2_000 });
  expect(ends).toEqual({ ok: 5_000 });
  await node.end();
  const seen = await upstream.read();
  expect(new Set(numbers(seen)).size).toBe(5_000);
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
  // The window is used to the full, and not once more.
  expect(seen.maxInWindow(500)).toBe(5);
  expect(seen.maxInWindow(2_000)).toBe(12);
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
  // The worst burst of a plain catch-up would be 30 at once.
  expect(seen.maxInWindow(20)).toBeLessThanOrEqual(4);
});
