// @ts-check
// A durable call: the request itself is stored, a worker sends it, and its result can be awaited or ignored.
import { createClient, defineLimits } from "spillway";
import { startLocalApi } from "./local-api.mjs";

const api = await startLocalApi();
const limits = defineLimits({
  // The worker adds the token when it sends: it never enters Redis.
  [api.host]: { rate: "5/s", retry: { attempts: 5 }, headers: () => ({ authorization: "Bearer secret" }) },
});
const client = createClient({ limits, worker: true });
try {
  const body = JSON.stringify({ event: "paid" });
  const ticket = await client.enqueue(`${api.url}/hooks`, { method: "POST", body });
  console.log(`accepted, expected in ${Number(ticket.expectedAt) - Date.now() <= 100 ? "a moment" : "a while"}`);

  // The id is enough to ask for the result, here or in any other process.
  const result = await client.ticket(ticket.id).result({ signal: AbortSignal.timeout(5000) });
  console.log(result.status, result.text());
} finally {
  await client.close();
  api.close();
}
