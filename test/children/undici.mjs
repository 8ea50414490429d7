// Throttles every fetch and request of this process by its global dispatcher.
import { createServer } from "node:http";
import { createClient, defineLimits } from "spillway";
import { throttle } from "spillway/undici";
import { Agent, request, setGlobalDispatcher } from "undici";

const [redis, prefix] = process.argv.slice(2);
/** @type {number[]} */
const arrivals = [];
const server = createServer((incoming, response) => {
  arrivals.push(performance.now());
  incoming.pipe(response);
}).listen(0, "127.0.0.1");
await new Promise((resolve) => server.once("listening", resolve));
const address = server.address();
const url = `http://127.0.0.1:${typeof address === "object" ? address?.port : 0}/`;

const limits = defineLimits({ "127.0.0.1": { rate: "20/s", concurrency: 4, capacity: 10 } });
const client = createClient({ redis, prefix, limits, worker: true });
const agent = new Agent().compose(throttle(client));
setGlobalDispatcher(agent);

const began = performance.now();
const said = { echoed: 0, took: 0, depth: 0, aborted: "", unknown: ["", ""], full: 0, inFlight: -1 };
const bodies = await Promise.all([
  ...[1, 2, 3].map((n) =>
    fetch(url, { method: "POST", body: `f${n}`, headers: { "Content-Length": "2" } }).then((response) =>
      response.text(),
    ),
  ),
  ...[1, 2, 3].map((n) => request(url, { method: "POST", body: `r${n}` }).then(({ body }) => body.text())),
]);
said.echoed = bodies.filter((body, i) => body === `${i < 3 ? "f" : "r"}${(i % 3) + 1}`).length;
said.took = Math.max(...arrivals) - began;
said.inFlight = (await client.limit("127.0.0.1").stats()).inFlight;

const codeOf = (/** @type {any} */ error) =>
  (typeof error.code === "string" ? error.code : undefined) ?? error.cause?.code ?? error.name;
said.unknown = await Promise.all([
  fetch("http://127.0.0.2:8080/").then(() => "", codeOf),
  request("http://127.0.0.2:8080/").then(() => "", codeOf),
]);

await client.limit("127.0.0.1").pause("10s");
const abort = new AbortController();
const waiting = request(url, { signal: abort.signal }).then(() => "", codeOf);
while ((await client.limit("127.0.0.1").stats()).depth < 1);
abort.abort();
said.aborted = await waiting;
for (let i = 0; i < 100 && (said.depth = (await client.limit("127.0.0.1").stats()).depth) > 0; i++) {
  await new Promise((resolve) => setTimeout(resolve, 10));
}
const many = Array.from({ length: 12 }, () => request(url).then(() => "", codeOf));
said.full = (await Promise.race([Promise.all(many.slice(10)), new Promise((r) => setTimeout(r, 5000, []))])).filter(
  (/** @type {string} */ code) => code === "ERR_QUEUE_FULL",
).length;
process.send?.({ type: "said", said });
if (process.send === undefined) console.log(process.version, said);
await client.close();
await agent.close();
server.close();
server.closeAllConnections();
