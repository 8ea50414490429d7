// @ts-check
// A small API on this machine, so that the examples need no network. It answers with a line about what it got, and when.
import { once } from "node:events";
import { createServer } from "node:http";

export async function startLocalApi() {
  let first = Number.NaN;
  const server = createServer((request, response) => {
    const now = performance.now();
    if (Number.isNaN(first)) first = now;
    const { method, url, headers } = request;
    const credentials = headers.authorization === undefined ? "" : `, with "${headers.authorization}"`;
    response.write(`${method} ${url} after ${Math.round(now - first)} ms${credentials}`);
    if (method === "POST") response.write(": ");
    request.pipe(response);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("Expected a port");
  const host = `127.0.0.1:${address.port}`;
  const close = () => {
    server.close();
    server.closeAllConnections();
  };
  return { host, url: `http://${host}`, close };
}
