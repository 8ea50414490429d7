// The server behind upstream.ts. Plain JavaScript, because a worker thread of Node 20 loads it as it is.
import { createServer } from "node:http";

/**
 * @typedef {object} Arrival
 * @property {number} at Milliseconds on the test's `performance.now()` clock, taken before anything else is done.
 * @property {string} method
 * @property {string} url Path and query.
 * @property {import("node:http").IncomingHttpHeaders} headers
 * @property {string} [body] Only with `bodies`.
 * @property {boolean} refused Answered 429 by the server's own limit.
 */

/**
 * @typedef {object} UpstreamOptions
 * @property {{ max: number, perMs: number, retryAfter?: number }} [limit] At most `max` accepted arrivals in any window
 *   of `perMs`; the others get 429 and Retry-After (`retryAfter` seconds, else until there is room). Refused ones do not
 *   count.
 * @property {number} [latencyMs] Time taken before the answer.
 * @property {boolean} [bodies] Keep request bodies as text; otherwise they are read and thrown away.
 */

/** @typedef {import("node:http").IncomingMessage} Request */
/** @typedef {import("node:http").ServerResponse} Response */
/** @typedef {(request: Request, response: Response, arrival: Arrival) => unknown} Handler */

/**
 * @param {UpstreamOptions} options
 * @param {() => number} now
 * @param {Handler} [handler] Answers what the limit lets through; without one the answer is 200 and "ok".
 */
export async function listen(options, now, handler) {
  const { limit, latencyMs = 0, bodies = false } = options;
  /** @type {Arrival[]} */
  const arrivals = [];
  /** @type {number[]} */
  const accepted = [];

  const server = createServer((request, response) => {
    const at = now();
    const { method = "", url = "", headers } = request;
    /** @type {Arrival} */
    const arrival = { at, method, url, headers, refused: false };
    arrivals.push(arrival);
    if (limit !== undefined) {
      while (accepted[0] !== undefined && accepted[0] + limit.perMs <= at) accepted.shift();
      arrival.refused = accepted.length >= limit.max;
      if (!arrival.refused) accepted.push(at);
    }
    const roomInMs = arrival.refused && limit !== undefined ? (accepted[0] ?? at) + limit.perMs - at : 0;
    const retryAfter = limit?.retryAfter ?? Math.ceil(roomInMs / 1_000);
    const answer = () => {
      if (arrival.refused) {
        response.writeHead(429, { "retry-after": `${retryAfter}` }).end("too many");
      } else if (handler === undefined) {
        response.end("ok");
      } else {
        void answerWith(handler, request, response, arrival);
      }
    };
    const answerInTime = () => (latencyMs > 0 ? setTimeout(answer, latencyMs) : answer());
    if (bodies) {
      let body = "";
      request.setEncoding("utf8").on("data", (chunk) => (body += chunk));
      request.on("end", () => {
        arrival.body = body;
        answerInTime();
      });
    } else {
      if (handler === undefined || arrival.refused) request.resume();
      answerInTime();
    }
  });
  // Longer than any test, so that no request meets a connection the server is just giving up.
  server.keepAliveTimeout = 120_000;
  await new Promise((resolve, reject) => {
    server.once("error", reject).listen(0, "127.0.0.1", () => resolve(undefined));
  });
  const { port } = /** @type {import("node:net").AddressInfo} */ (server.address());
  const close = () => {
    const closed = new Promise((resolve) => server.close(resolve));
    server.closeAllConnections();
    return closed;
  };
  return { port, arrivals, close };
}

/**
 * @param {Handler} handler
 * @param {Request} request
 * @param {Response} response
 * @param {Arrival} arrival
 */
async function answerWith(handler, request, response, arrival) {
  try {
    await handler(request, response, arrival);
  } catch (error) {
    if (response.headersSent) response.destroy();
    else response.writeHead(500).end(String(error));
  }
}
