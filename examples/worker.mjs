// @ts-check
// A producer and a background worker, in two processes that share nothing but Redis.
import { fork } from "node:child_process";
import { once } from "node:events";
import { createClient, createWorker, defineLimits } from "spillway";
import { startEmbeddedRedis } from "spillway/embedded";
import { startLocalApi } from "./local-api.mjs";

const [redis, host] = process.argv.slice(2);
if (redis !== undefined && host !== undefined) {
  const worker = createWorker({ redis, limits: defineLimits({ [host]: { rate: "5/s" } }) });
  process.once("disconnect", () => void worker.close());
} else {
  const server = await startEmbeddedRedis();
  const api = await startLocalApi();
  const child = fork(import.meta.filename, [server.url, api.host]);
  const client = createClient({ redis: server.url, limits: defineLimits({ [api.host]: { rate: "5/s" } }) });
  const { tickets } = await client.enqueueMany([1, 2, 3, 4].map((n) => ({ url: `${api.url}/${n}` })));
  for (const ticket of tickets) console.log("sent by the worker:", (await ticket.result()).text());
  await client.close();
  child.disconnect();
  await once(child, "exit");
  await server.close();
  api.close();
}
