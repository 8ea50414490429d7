// @ts-check
// The server that is called: it notes when each request arrived, and does as little else as it can, since it shares the
// processor with what is measured. GET /NUMBER or /NUMBER/SIZE, keep-alive, no request bodies larger than a chunk.
import { createServer } from "node:net";
import { serve } from "./processes.mjs";

/** @typedef {{ at: Float64Array, order: Int32Array }} Arrivals */

const MOST = 4_000_000;
const at = new Float64Array(MOST);
const order = new Int32Array(MOST);
let count = 0;

/** @type {Map<number, Buffer>} */
const responses = new Map();
function responseOf(/** @type {number} */ size) {
  let response = responses.get(size);
  if (response === undefined) {
    const head = `HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: ${size}\r\nConnection: keep-alive\r\n\r\n`;
    response = Buffer.from(head + "x".repeat(size));
    responses.set(size, response);
  }
  return response;
}

const server = createServer({ noDelay: true }, (socket) => {
  let unread = "";
  socket.on("error", () => {});
  socket.on("data", (chunk) => {
    const now = performance.now();
    unread += chunk.toString("latin1");
    for (;;) {
      const end = unread.indexOf("\r\n\r\n");
      if (end === -1) return;
      const [, number, size] = /^[A-Z]+ \/(\d+)(?:\/(\d+))? /.exec(unread) ?? [];
      unread = unread.slice(end + 4);
      if (count < MOST) {
        at[count] = now;
        order[count] = Number(number ?? -1);
        count++;
      }
      socket.write(responseOf(Number(size ?? 2)));
    }
  });
});

server.listen(0, "127.0.0.1", () => {
  const address = server.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  serve(
    {
      clear: () => void (count = 0),
      mark: () => ({ at: performance.now(), count }),
      read: () => ({ at: at.slice(0, count), order: order.slice(0, count) }),
    },
    { host: `127.0.0.1:${port}` },
  );
});
