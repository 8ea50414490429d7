/** `concurrency`: what counts as in flight, and when it ends. */
import { setTimeout as sleep } from "node:timers/promises";
import type { ServerResponse } from "node:http";
import { expect, test } from "vitest";
import { startUpstream } from "../helpers/upstream.js";
import { until } from "../helpers/wait.js";
import { ending, name, openDesk } from "./desk.js";

test("a response is in flight for as long as its body streams", async () => {
  const open: ServerResponse[] = [];
  await using upstream = await startUpstream({
    handler: (_request, response) => {
      response.write("begin ");
      open.push(response);
    },
  });
  await using desk = openDesk({ [upstream.host]: { rate: "1000/s", concurrency: 2 } });
  const { client } = desk;
  const first = await client.fetch(upstream.url);
  const second = await client.fetch(upstream.url);
  const third = client.fetch(upstream.url);
  await until(async () => (await client.limit(upstream.host).stats()).waiting === 1);
  await sleep(60);
  expect(open).toHaveLength(2);
  expect(await client.limit(upstream.host).stats()).toMatchObject({ inFlight: 2, waiting: 1, depth: 1 });

  open[0]?.end("end");
  expect(await first.text()).toBe("begin end");
  await third;
  expect(open).toHaveLength(3);
  expect((await client.limit(upstream.host).stats()).inFlight).toBe(2);
  for (const response of open) response.end();
  await Promise.all([second.text(), (await third).text()]);
  await until(async () => (await client.limit(upstream.host).stats()).inFlight === 0);
});

test("a small body that nobody reads does not stay in flight", async () => {
  await using upstream = await startUpstream({ handler: (_request, response) => void response.end("x".repeat(2000)) });
  await using desk = openDesk({ [upstream.host]: { rate: "1000/s", concurrency: 1 } });
  const responses = [];
  for (let i = 0; i < 20; i++) responses.push(await desk.client.fetch(upstream.url));
  expect(await responses[7]?.text()).toHaveLength(2000);
});

test("each hop of a redirect is a flight of its own, to the end of its response", async () => {
  let most = 0;
  let now = 0;
  await using upstream = await startUpstream({
    handler: async (request, response) => {
      most = Math.max(most, ++now);
      response.once("close", () => now--);
      await sleep(30);
      if (request.url === "/0") response.writeHead(302, { location: "/1" }).end("moved");
      else if (request.url === "/1") response.writeHead(307, { location: "/2" }).end("moved");
      else response.end("there");
    },
  });
  await using desk = openDesk({ [upstream.host]: { rate: "1000/s", concurrency: 1 } });
  const get = async (): Promise<string> => (await desk.client.fetch(`${upstream.url}/0`)).text();
  expect(await Promise.all([get(), get(), get()])).toEqual(["there", "there", "there"]);
  expect(upstream.arrivals.map(({ url }) => url).toSorted()).toEqual([
    "/0",
    "/0",
    "/0",
    "/1",
    "/1",
    "/1",
    "/2",
    "/2",
    "/2",
  ]);
  expect(most).toBe(1);
  await until(async () => (await desk.client.limit(upstream.host).stats()).inFlight === 0);
});

test("a run is in flight until its promise settles, whether it succeeds or throws", async () => {
  const limit = name();
  await using desk = openDesk({ [limit]: { rate: "1000/s", concurrency: 1 } });
  const { client } = desk;
  let running = 0;
  let most = 0;
  const work = async (i: number): Promise<number> => {
    most = Math.max(most, ++running);
    await sleep(10);
    running--;
    if (i % 2 === 1) throw new Error(`failed ${i}`);
    return i;
  };
  const ends = await Promise.all(Array.from({ length: 6 }, (_, i) => ending(client.run(limit, () => work(i)))));
  expect(ends.map(({ value, error }) => value ?? (error as Error).message)).toEqual([
    0,
    "failed 1",
    2,
    "failed 3",
    4,
    "failed 5",
  ]);
  expect(most).toBe(1);
  const thrown = client.run(limit, () => {
    throw new Error("at once");
  });
  await expect(thrown).rejects.toThrow("at once");
  await until(async () => (await client.limit(limit).stats()).inFlight === 0);
});

test("a call that gives up between grant and slot frees its place in flight", async () => {
  const limit = name();
  await using desk = openDesk({ [limit]: { rate: { limit: 1, per: "15ms" }, lateness: 0, concurrency: 1 } });
  const { client } = desk;
  for (let i = 0; i < 10; i++) {
    const controller = new AbortController();
    const end = ending(client.run(limit, () => {}, { signal: controller.signal }));
    await client.limit(limit).stats();
    controller.abort();
    await end;
  }
  await until(async () => (await client.limit(limit).stats()).inFlight === 0, { timeout: 1000 });
  expect(await client.run(limit, () => "free")).toBe("free");
});
