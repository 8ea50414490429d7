// A program as people write it: it opens a client, uses it, closes it, and must then end by itself.
import { createClient, defineLimits } from "spillway";

const { redis, prefix, worker, url, use, close = 1 } = JSON.parse(process.argv[2] ?? "{}");
const limits = defineLimits({ [new URL(url).host]: { rate: "1/m" } });
const client = createClient({ redis, prefix, limits, worker });
const limit = new URL(url).host;
/** @type {Promise<string>[]} */
const ends = [];
/** @param {Promise<unknown>} call */
const end = (call) => ends.push(call.then(() => "ok").catch((error) => error.code ?? String(error)));
if (use === "idle") {
  // Closed before it has connected.
} else {
  await client.run(limit, () => {});
  if (use === "waiting") {
    end(client.fetch(url));
    end(client.run(limit, () => {}, { signal: new AbortController().signal }));
    const ticket = await client.enqueue(url);
    end(ticket.result());
    end(ticket.result());
    while ((await client.limit(limit).stats()).depth < 3) await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
for (let i = 0; i < close; i++) await client.close();
process.stdout.write(`${JSON.stringify(await Promise.all(ends))}\n`);
process.on("exit", () => process.stdout.write("ended by itself\n"));
// The parent's channel is the only thing that would keep it alive.
process.disconnect();
