// @ts-check
// Any SDK that takes a `fetch` is throttled by handing it client.fetch; any other one by client.run.
import { createClient, defineLimits } from "spillway";
import { startLocalApi } from "./local-api.mjs";
/** Stands for an SDK: `new Octokit({ request: { fetch } })` and `new OpenAI({ fetch })` take one in the same way. */
class Shop {
  constructor(/** @type {{ baseUrl: string, fetch: import("spillway").Client["fetch"] }} */ options) {
    this.options = options;
  }
  order(/** @type {number} */ id) {
    const { fetch, baseUrl } = this.options;
    return fetch(`${baseUrl}/orders/${id}`).then((response) => response.text());
  }
}
const api = await startLocalApi();
const limits = defineLimits({ [api.host]: { rate: "5/s" }, reports: { rate: "5/s", concurrency: 2 } });
const client = createClient({ limits, worker: true });
try {
  const shop = new Shop({ baseUrl: api.url, fetch: client.fetch });
  console.log(await Promise.all([1, 2, 3].map((id) => shop.order(id))));
  console.log(await client.run("reports", async () => "any async function waits its turn"));
} finally {
  await client.close();
  api.close();
}
