// @ts-check
// Any SDK that takes a `fetch` is throttled by handing it client.fetch; any other one by client.run.
import { Octokit } from "@octokit/core";
import { createClient, defineLimits } from "spillway";
import { startLocalApi } from "./local-api.mjs";

const api = await startLocalApi();
const limits = defineLimits({ [api.host]: { rate: "5/s" }, reports: { rate: "5/s", concurrency: 2 } });
const client = createClient({ limits, worker: true });
const octokit = new Octokit({ baseUrl: api.url, request: { fetch: client.fetch } });
try {
  const names = ["ada", "grace", "barbara"];
  const users = await Promise.all(names.map((username) => octokit.request("GET /users/{username}", { username })));
  console.log(users.map(({ data }) => data));
  console.log(await client.run("reports", async () => "any async function waits its turn"));
} finally {
  await client.close();
  api.close();
}
