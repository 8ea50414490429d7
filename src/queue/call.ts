import { isUtf8 } from "node:buffer";
import { BodyTooLargeError, InvalidCallError } from "../errors.js";
import type { CallTerms } from "./terms.js";

/** A durable request as it waits in Redis. `v` is the version of this format. */
export interface StoredRequest {
  readonly v: 1;
  readonly url: string;
  readonly method: string;
  readonly headers: readonly (readonly [string, string])[];
  readonly body?: string;
  /** How `body` is written; text when it is not there. */
  readonly encoding?: "base64";
  /** Redirects are followed when it is not there. */
  readonly redirect?: "manual";
}

/** What `enqueue` takes as a body: whatever `fetch` takes. It is read to its end before anything is stored. */
export type CallBody = NonNullable<RequestInit["body"]>;

/** The request of a durable call, in the shape of fetch's `init`. */
export interface CallInit extends CallTerms {
  /** @default "GET" */
  readonly method?: string;
  readonly headers?: RequestInit["headers"];
  /** Read to its end before anything is stored; at most `maxRequestBytes`. */
  readonly body?: CallBody | null;
  /**
   * As in fetch: `"follow"` sends the call to where a redirect leads, 20 times at most. Each request waits for a slot of
   * the host that it goes to, and credentials do not leave their origin. `"manual"`: the redirect is the result.
   *
   * @default "follow"
   */
  readonly redirect?: "follow" | "manual";
  /**
   * Your own id for the call, which makes accepting it idempotent: while a call with this id waits, runs, or has a result
   * that is still kept (`keepResults`), another one to the same bucket is not stored, and gets the ticket of the first.
   * After ERR_REDIS_UNAVAILABLE it may have been accepted nevertheless: ask again with the same id. 1 to 200 of the
   * characters A-Z a-z 0-9 _ . @ = + -
   *
   * @default a new one for each call
   */
  readonly id?: string;
  /**
   * A key under which only one call of a bucket may wait at a time. While one does, another one with the same key is not
   * stored and gets the ticket of the first (`mode: "join"`, the default), or is refused with `ERR_DUPLICATE`
   * (`mode: "refuse"`). From the start of its first attempt on, a call is no longer in the way. 1 to 1000 characters.
   *
   * @default none
   */
  readonly dedupe?: string | { readonly key: string; readonly mode?: "join" | "refuse" };
}

const TOKEN = /^[!#$%&'*+.^_`|~\w-]+$/;

/** Checks a request and turns it into what is stored. Nothing reaches Redis when this throws. */
export async function encodeRequest(
  url: URL,
  init: CallInit,
  headers: Headers,
  maxBytes: number,
): Promise<StoredRequest> {
  const method = (init.method ?? "GET").toUpperCase();
  if (url.username !== "" || url.password !== "") {
    throw new InvalidCallError("Expected a URL without user and password: use a header, or the `headers` of the limit");
  }
  if (!TOKEN.test(method)) throw new InvalidCallError(`Expected an HTTP method, got ${JSON.stringify(init.method)}`);
  if (method === "CONNECT") throw new InvalidCallError("A CONNECT request cannot be enqueued");
  const { redirect = "follow" } = init;
  if (redirect !== "follow" && redirect !== "manual") {
    throw new InvalidCallError(`Expected redirect to be "follow" or "manual", got ${JSON.stringify(redirect)}`);
  }
  checkSendable(headers);
  const stored = { v: 1, url: url.href, method, ...(redirect === "manual" && { redirect }) } as const;
  if (init.body === undefined || init.body === null) {
    checkLength(headers, 0);
    return { ...stored, headers: [...headers] };
  }
  if (method === "GET" || method === "HEAD") throw new InvalidCallError(`A ${method} request cannot have a body`);
  const body = await readBody(init.body, headers, maxBytes);
  checkLength(headers, body.byteLength);
  return { ...stored, headers: [...headers], ...encodeBody(body) };
}

/** @throws {InvalidCallError} for headers that are none. */
export function readHeaders(source: RequestInit["headers"]): Headers {
  try {
    return new Headers(source);
  } catch (cause) {
    throw new InvalidCallError(`Expected valid headers: ${cause instanceof Error ? cause.message : String(cause)}`, {
      cause,
    });
  }
}

/** Undici refuses to send them, and forwarded headers bring them along. */
const OF_CONNECTION: readonly string[] = ["transfer-encoding", "keep-alive", "upgrade", "expect"];

function checkSendable(headers: Headers): void {
  const name = OF_CONNECTION.find((one) => headers.has(one));
  if (name === undefined) return;
  throw new InvalidCallError(`Expected headers without \`${name}\`, which tells of one connection and not of the call`);
}

function checkLength(headers: Headers, bytes: number): void {
  const length = headers.get("content-length");
  if (length === null || length === String(bytes)) return;
  const expected = `the ${bytes} bytes of the body, or left out`;
  throw new InvalidCallError(`Expected \`content-length\` to be ${expected}, got ${JSON.stringify(length)}`);
}

async function readBody(source: CallBody, headers: Headers, maxBytes: number): Promise<Buffer> {
  if (typeof source === "string") return readText(source, headers, maxBytes);
  // A Response knows how to read every kind of body that fetch takes, and which content type goes with it.
  const response = open(source);
  const type = response.headers.get("content-type");
  if (type !== null && !headers.has("content-type")) headers.set("content-type", type);
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of response.body ?? []) {
    bytes += chunk.byteLength;
    if (bytes > maxBytes) throw new BodyTooLargeError({ bytes, maxBytes });
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

function open(source: CallBody): Response {
  // As fetch would send it, that is "[object Object]".
  if (Object.getPrototypeOf(source) === Object.prototype || Array.isArray(source)) {
    throw new InvalidCallError("Expected a body that fetch takes, got a plain object or array: use JSON.stringify()");
  }
  try {
    return new Response(source);
  } catch (cause) {
    throw new InvalidCallError("Expected a body that can be read: this one has been read, or is locked", { cause });
  }
}

function readText(source: string, headers: Headers, maxBytes: number): Buffer {
  if (!headers.has("content-type")) headers.set("content-type", "text/plain;charset=UTF-8");
  const body = Buffer.from(source);
  if (body.byteLength > maxBytes) throw new BodyTooLargeError({ bytes: body.byteLength, maxBytes });
  return body;
}

function encodeBody(body: Buffer): Pick<StoredRequest, "body" | "encoding"> {
  if (isUtf8(body)) return { body: body.toString("utf8") };
  return { body: body.toString("base64"), encoding: "base64" };
}

/** @throws {InvalidCallError} for a call of another format, written by a later version or changed by other hands. */
export function decodeRequest(data: string): StoredRequest {
  const stored = parseJson(data);
  if (typeof stored !== "object" || stored === null || !("v" in stored) || stored.v !== 1) {
    throw new InvalidCallError("Expected a stored request of version 1: is this worker older than the client?");
  }
  // Written by this package only, as JSON of exactly this type.
  return stored as StoredRequest;
}

function parseJson(data: string): unknown {
  try {
    return JSON.parse(data);
  } catch {
    return undefined;
  }
}

export function decodeBody({ body, encoding }: StoredRequest): Buffer | string | undefined {
  return encoding === "base64" && body !== undefined ? Buffer.from(body, "base64") : body;
}

/** May this be sent again when nobody knows whether it arrived? */
export function isIdempotent(request: StoredRequest, methods: readonly string[]): boolean {
  return methods.includes(request.method) || request.headers.some(([name]) => name === "idempotency-key");
}
