import { createClient, createWorker, defineLimits } from "spillway";
import { Agent } from "undici";
import { expect, test, vi } from "vitest";
import { redisUrl, uniquePrefix } from "../helpers/redis.js";
import { startUpstreamThread } from "../helpers/upstream.js";
import { arrived, endAll, type Ends, numbers, startNode, startNodes } from "./nodes.js";

// Generous: only a hang should end a test on a busy machine.
vi.setConfig({ testTimeout: 90_000 });

const COUNT = 150;
const inOrder = Array.from({ length: COUNT }, (_, i) => i);
const redis = redisUrl();
// With `lateness: 0` no slot is given up for being late. What is left is that timers of one process which are overdue
// together, because the machine was busy, may fire in any order: a place or two, where all others are exact.

function expectOrder(sent: readonly number[]): void {
  expect(sent.toSorted((a, b) => a - b)).toEqual(inOrder);
  const displaced = sent.map((n, i) => Math.abs(n - i)).filter((by) => by > 0);
  expect(displaced.length).toBeLessThan(0.2 * COUNT);
  expect(Math.max(0, ...displaced)).toBeLessThanOrEqual(6);
}

test("one worker sends durable calls in order", async () => {
  await using upstream = await startUpstreamThread();
  const prefix = uniquePrefix();
  const limits = defineLimits({ [upstream.host]: { rate: "200/s", lateness: 0 } });
  // Over several connections, one request may arrive before another that was sent earlier.
  const dispatcher = new Agent({ connections: 1 });
  await using client = createClient({ redis, prefix, limits });
  for (const i of inOrder) await client.enqueue(`${upstream.url}/?n=${i}`);
  await using _worker = createWorker({ redis, prefix, limits, dispatcher });
  await arrived(upstream, COUNT);
  expectOrder(numbers(await upstream.read()).map(Number));
  await dispatcher.close();
});

test("one worker grants permits in order, among them durable calls", async () => {
  await using upstream = await startUpstreamThread();
  const setup = { prefix: uniquePrefix(), limits: { [upstream.host]: { rate: "200/s", lateness: 0 } } as const };
  const worker = await startNode("worker", setup);
  await using client = createClient({ redis, prefix: setup.prefix, limits: defineLimits(setup.limits) });
  const started: number[] = [];
  const tickets = [];
  for (const i of inOrder) {
    if (i % 10 === 0) tickets.push(client.enqueue(upstream.url).then((ticket) => ticket.result()));
    tickets.push(client.run(upstream.host, () => started.push(i)));
  }
  await Promise.all(tickets);
  await worker.end();
  expectOrder(started);
});

test("of four workers, none overtakes by more than the few calls held at once", async () => {
  await using upstream = await startUpstreamThread();
  const setup = { prefix: uniquePrefix(), limits: { [upstream.host]: { rate: "100/s", lateness: 0 } } as const };
  const workers = await startNodes(4, "worker", setup);
  const client = await startNode("client", setup);
  const { ends } = await client.ask<Ends>("deliver", { url: upstream.url, count: COUNT });
  expect(ends).toEqual({ ok: COUNT });
  // It was not one of them alone who did it.
  const busy = workers.filter(({ messages }) => messages.some(({ type }) => type === "finish"));
  expect(busy.length).toBeGreaterThan(1);
  await endAll([client, ...workers]);
  const sent = numbers(await upstream.read());
  const displaced = sent.map((n, i) => Math.abs(Number(n) - i));
  expect(sent.length).toBe(COUNT);
  // A worker that gets no processor for a while delays what it holds: on a quiet machine it is 2 at most.
  expect(Math.max(...displaced)).toBeLessThanOrEqual(15);
  expect(displaced.reduce((sum, by) => sum + by, 0) / COUNT).toBeLessThan(2);
});
