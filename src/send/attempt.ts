import type { IncomingHttpHeaders } from "node:http";
import type { Dispatcher } from "undici";
import type { Limit } from "../limits/options.js";
import { decodeBody, type StoredRequest } from "../queue/call.js";
import { plainId } from "../queue/ids.js";
import { onAbort } from "../redis/abort.js";
import { decoded } from "./decode.js";
import { headersOf } from "./feedback/headers.js";
import { request } from "./undici.js";

export interface AttemptResponse {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  /** Decoded, where the server has compressed it. */
  readonly body: Buffer;
  /** The body was larger than `maxResponseBytes` and was not kept. */
  readonly bodyDropped: boolean;
}

/**
 * The headers of one attempt: those that were stored, and those that the limit adds so that they need not be.
 *
 * @param closing ends the wait for the limit's function, which has no longer than an attempt.
 * @throws its reason; or an error that counts as a failed attempt, whatever the function has thrown: it may use spillway
 *   itself, and that error is not one of this call.
 */
export async function prepareHeaders(
  stored: StoredRequest,
  id: string,
  limit: Limit,
  closing: AbortSignal,
): Promise<string[]> {
  if (limit.headers === undefined) return stored.headers.flat();
  closing.throwIfAborted();
  const { headers: add, timeoutMs } = limit;
  const headers = new Headers(stored.headers.map(([name, value]): [string, string] => [name, value]));
  const ask = async (): Promise<Headers> =>
    new Headers(await add({ url: new URL(stored.url), method: stored.method, headers, id: plainId(id) }));
  try {
    for (const [name, value] of await within(timeoutMs, closing, ask())) headers.set(name, value);
  } catch (error) {
    if (closing.aborted) throw closing.reason;
    const why = error instanceof Error ? error.message : String(error);
    throw new Error(`The \`headers\` function of the limit failed: ${why}`, { cause: error });
  }
  return [...headers].flat();
}

async function within<T>(milliseconds: number, signal: AbortSignal, result: Promise<T>): Promise<T> {
  let stop = (): void => {};
  const end = new Promise<never>((_resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`no headers within ${milliseconds} ms`)), milliseconds);
    const stopListening = onAbort(signal, () => reject(signal.reason));
    stop = () => {
      clearTimeout(timer);
      stopListening();
    };
  });
  try {
    return await Promise.race([result, end]);
  } finally {
    stop();
  }
}

/**
 * The response with its body decoded, as fetch would give it; unlike there, its headers then no longer say that it is
 * encoded. What cannot be decoded stays as it came.
 */
async function unpacked(response: AttemptResponse, maxBytes: number): Promise<AttemptResponse> {
  const body = await decoded(response.body, headersOf(response.headers).get("content-encoding"), maxBytes);
  if (body === "too large") return { ...response, body: Buffer.alloc(0), bodyDropped: true };
  if (body === undefined || body === response.body) return response;
  const { "content-encoding": _encoding, "content-length": _length, ...headers } = response.headers;
  return { ...response, headers, body };
}

/**
 * Sends a durable request once, and reads its response to the end, within the limit's `timeout`.
 *
 * @param signal aborts the attempt, when a worker is closed and will not wait any longer.
 */
export async function attempt(
  stored: StoredRequest,
  headers: string[],
  limit: Limit,
  dispatcher: Dispatcher,
  signal: AbortSignal,
): Promise<AttemptResponse> {
  const abort = new AbortController();
  const onTimeout = (): void => abort.abort(new Error(`No complete response within ${limit.timeoutMs} ms`));
  const timer = setTimeout(onTimeout, limit.timeoutMs);
  const stopListening = onAbort(signal, () => abort.abort(signal.reason));
  try {
    const response = await request(stored.url, {
      dispatcher,
      method: stored.method,
      headers,
      body: decodeBody(stored) ?? null,
      signal: abort.signal,
      // One bound for the whole attempt, not one for each of its parts.
      headersTimeout: 0,
      bodyTimeout: 0,
    });
    const body = await readBody(response.body, limit.maxResponseBytes);
    return await unpacked({ status: response.statusCode, headers: response.headers, ...body }, limit.maxResponseBytes);
  } finally {
    clearTimeout(timer);
    stopListening();
  }
}

async function readBody(
  stream: Dispatcher.ResponseData["body"],
  maxBytes: number,
): Promise<Pick<AttemptResponse, "body" | "bodyDropped">> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of stream) {
    if (!Buffer.isBuffer(chunk)) throw new TypeError("Expected a body of bytes");
    bytes += chunk.byteLength;
    // Leaving the loop destroys the stream, and its connection with it: the rest need not be transferred.
    if (bytes > maxBytes) return { body: Buffer.alloc(0), bodyDropped: true };
    chunks.push(chunk);
  }
  return { body: Buffer.concat(chunks), bodyDropped: false };
}
