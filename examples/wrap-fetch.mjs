// @ts-check
// A fetch that waits its turn. Same arguments, same Response; only the start is held back.
import { createClient, defineLimits } from "spillway";
import { startLocalApi } from "./local-api.mjs";

const api = await startLocalApi();
const limits = defineLimits({ [api.host]: { rate: "10/s", capacity: 5 } });
const client = createClient({ limits, worker: true });
try {
  const calls = Array.from({ length: 10 }, async (_, i) => {
    const response = await client.fetch(`${api.url}/items/${i}`);
    console.log(await response.text());
  });
  const results = await Promise.allSettled(calls);
  const codes = results.map((result) => (result.status === "rejected" ? result.reason.code : "ok"));
  // One started at once, five could wait.
  console.log(codes.join(" "));
} finally {
  await client.close();
  api.close();
}
