// Fetches after the library has been imported, and before anything else has fetched.
import { createServer } from "node:http";
import "spillway";

const server = createServer((request, response) => request.pipe(response)).listen(0, "127.0.0.1");
await new Promise((resolve) => server.once("listening", resolve));
const address = server.address();
const url = `http://127.0.0.1:${typeof address === "object" ? address?.port : 0}/`;
const echo = await fetch(url, { method: "POST", body: "abc", headers: { "Content-Length": "3" } }).then(
  (response) => response.text(),
  (error) => String(error.cause ?? error),
);
process.send?.({ type: "echo", echo });
server.close();
server.closeAllConnections();
process.disconnect();
