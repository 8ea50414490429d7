// Streams a gigabyte down and a gigabyte up through client.fetch, and says how much memory that took.
import { createClient, defineLimits } from "spillway";

const { redis, prefix, url, bytes } = JSON.parse(process.argv[2] ?? "{}");
const limits = defineLimits({ [new URL(url).host]: { rate: "100/s", concurrency: 1 } });
const client = createClient({ redis, prefix, limits, worker: true });
let most = 0;
const sampler = setInterval(() => (most = Math.max(most, process.memoryUsage.rss())), 10);

await (await client.fetch(`${url}/warm-up`)).arrayBuffer();
const before = process.memoryUsage.rss();
const response = await client.fetch(`${url}/down`);
let down = 0;
for await (const chunk of response.body ?? []) down += chunk.byteLength;

let left = bytes;
const chunk = new Uint8Array(512 * 1024);
const body = new ReadableStream(
  {
    pull(controller) {
      controller.enqueue(left < chunk.byteLength ? chunk.subarray(0, left) : chunk);
      left -= Math.min(left, chunk.byteLength);
      if (left === 0) controller.close();
    },
  },
  { highWaterMark: 0 },
);
const answer = await client.fetch(`${url}/up`, { method: "POST", body, duplex: "half" });
const up = Number(await answer.text());
clearInterval(sampler);
process.send?.({ type: "streamed", down, up, before, most });
await client.close();
process.disconnect();
