/** Bodies stream: chunk by chunk, in both directions, and whatever their size. */
import type { ServerResponse } from "node:http";
import { pipeline } from "node:stream/promises";
import { Readable } from "node:stream";
import { expect, test } from "vitest";
import { startChild } from "../helpers/child.js";
import { redisUrl, uniquePrefix } from "../helpers/redis.js";
import { startUpstream } from "../helpers/upstream.js";
import { bounded, until } from "../helpers/wait.js";
import { openDesk } from "./desk.js";

test("a response arrives chunk by chunk, while the server waits for each to be read", async () => {
  let server: ServerResponse | undefined;
  await using upstream = await startUpstream({ handler: (_request, response) => void (server = response) });
  await using desk = openDesk({ [upstream.host]: { rate: "1000/s", concurrency: 2 } });
  const pending = desk.client.fetch(upstream.url);
  await until(() => server !== undefined);
  server?.write("0");
  const reader = (await bounded(pending, 2000, "the headers")).body?.getReader();
  for (let i = 0; i < 5; i++) {
    // The next is not written before this one was read.
    const chunk = await bounded(reader?.read() ?? Promise.reject(new Error("no body")), 2000, `chunk ${i}`);
    expect(Buffer.from(chunk.value ?? []).toString()).toBe(`${i}`);
    server?.write(`${i + 1}`);
  }
  server?.end();
  expect(Buffer.from((await reader?.read())?.value ?? []).toString()).toBe("5");
  expect((await reader?.read())?.done).toBe(true);
});

test("a request body is sent chunk by chunk, while the server answers", async () => {
  await using upstream = await startUpstream({ handler: (request, response) => void request.pipe(response) });
  await using desk = openDesk({ [upstream.host]: { rate: "1000/s" } });
  let feed: ReadableStreamDefaultController<Uint8Array> | undefined;
  const body = new ReadableStream<Uint8Array>({ start: (controller) => void (feed = controller) });
  const init: RequestInit & { duplex: "half" } = { method: "POST", body, duplex: "half" };
  const pending = desk.client.fetch(upstream.url, init);
  feed?.enqueue(Buffer.from("first"));
  const reader = (await bounded(pending, 2000, "the headers")).body?.getReader();
  expect(Buffer.from((await reader?.read())?.value ?? []).toString()).toBe("first");
  feed?.enqueue(Buffer.from("second"));
  expect(Buffer.from((await reader?.read())?.value ?? []).toString()).toBe("second");
  feed?.close();
  expect((await reader?.read())?.done).toBe(true);
});

test("a gigabyte down and one up take the memory of a few chunks", { timeout: 60_000 }, async () => {
  const bytes = 1024 ** 3;
  const zeros = Buffer.alloc(512 * 1024);
  function* gigabyte(): Generator<Buffer> {
    for (let sent = 0; sent < bytes; sent += zeros.byteLength) yield zeros;
  }
  await using upstream = await startUpstream({
    handler: async (request, response) => {
      if (request.url === "/down") {
        await pipeline(Readable.from(gigabyte(), { objectMode: true, highWaterMark: 2 }), response);
        return;
      }
      let got = 0;
      for await (const chunk of request) got += (chunk as Buffer).byteLength;
      response.end(`${got}`);
    },
  });
  const args = [JSON.stringify({ redis: redisUrl(), prefix: uniquePrefix(), url: upstream.url, bytes })];
  await using child = startChild("intake-stream.mjs", { args, execArgv: ["--max-old-space-size=64"] });
  const { down, up, before, most } = await child.next<{ down: number; up: number; before: number; most: number }>(
    "streamed",
    { timeout: 50_000 },
  );
  expect([down, up]).toEqual([bytes, bytes]);
  expect((most - before) / 1024 ** 2).toBeLessThan(256);
});
