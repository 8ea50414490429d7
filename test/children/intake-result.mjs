// Awaits the result of a call that another process has enqueued, knowing its id only.
import { createClient, defineLimits } from "spillway";

const { redis, prefix, limits, id } = JSON.parse(process.argv[2] ?? "{}");
const client = createClient({ redis, prefix, limits: defineLimits(limits) });
const result = client.ticket(id).result();
// Its registration is on its way; what it would miss it finds by looking.
await client.limit(String(Object.keys(limits)[0])).stats();
process.send?.({ type: "waiting" });
const { status, body } = await result;
process.send?.({ type: "result", status, text: body.toString("utf8") });
await client.close();
process.disconnect();
