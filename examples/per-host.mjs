// @ts-check
// A wildcard gives each host that it covers a bucket of its own; `key` does the same for each tenant.
import { createClient, defineLimits } from "spillway";
import { startLocalApi } from "./local-api.mjs";

const [one, two] = await Promise.all([startLocalApi(), startLocalApi()]);
const tenantOf = (/** @type {import("spillway").LimitRequest} */ { headers }) => headers.get("x-tenant") ?? "nobody";
const limits = defineLimits({
  "*": { rate: "5/s" }, // any host; "*.example.com" for those under one domain
  [`${two.host}/tenants`]: { rate: "1/s", key: tenantOf },
});
const client = createClient({ limits, worker: true });
try {
  const get = async (/** @type {string} */ url, tenant = "") => {
    const response = await client.fetch(url, { headers: { "x-tenant": tenant } });
    return response.text();
  };
  const hosts = [one, one, two, two].map(({ url }, i) => get(`${url}/${i}`));
  const tenants = ["a", "b", "a"].map((tenant) => get(`${two.url}/tenants/${tenant}`, tenant));
  for (const line of await Promise.all([...hosts, ...tenants])) console.log(line);
} finally {
  await client.close();
  for (const api of [one, two]) api.close();
}
