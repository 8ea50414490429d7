import type { IncomingHttpHeaders } from "node:http";
import type { StoredRequest } from "../queue/call.js";

// Undici's redirect interceptor is not used: a redirect to the same URL (303 after a POST, or one that sets a cookie) is
// a loop to it, it follows 300, and keeps the content headers of a POST that has become a GET.

/** What fetch follows. */
const REDIRECTS: readonly number[] = [301, 302, 303, 307, 308];
const CREDENTIALS: readonly string[] = ["authorization", "cookie", "proxy-authorization", "host"];
/** They tell about a body. The Fetch standard names the first four; the length would be wrong. */
const OF_BODY: readonly string[] = [
  "content-encoding",
  "content-language",
  "content-location",
  "content-type",
  "content-length",
];

interface Response {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
}

/**
 * The request that a redirect asks for; undefined when the response is none.
 *
 * @see https://fetch.spec.whatwg.org/#http-redirect-fetch
 * @throws {TypeError} when it leads to what is no URL, no http: or https: URL, or one with user and password.
 */
export function redirected(request: StoredRequest, { status, headers }: Response): StoredRequest | undefined {
  const { location } = headers;
  if (!REDIRECTS.includes(status) || location === undefined) return undefined;
  const from = new URL(request.url);
  const url = URL.canParse(location, from.href) ? new URL(location, from) : undefined;
  const isHttp = url?.protocol === "http:" || url?.protocol === "https:";
  if (url === undefined || !isHttp || url.username !== "" || url.password !== "") {
    throw new TypeError("it is no http: or https: URL without user and password");
  }
  const next = becomesGet(status, request.method) ? asGet(request) : request;
  const dropped = url.origin === from.origin ? [] : CREDENTIALS;
  return { ...next, url: url.href, headers: without(next.headers, dropped) };
}

function becomesGet(status: number, method: string): boolean {
  if (status === 303) return method !== "GET" && method !== "HEAD";
  return (status === 301 || status === 302) && method === "POST";
}

function asGet({ body: _body, encoding: _encoding, ...request }: StoredRequest): StoredRequest {
  return { ...request, method: "GET", headers: without(request.headers, OF_BODY) };
}

function without(headers: StoredRequest["headers"], names: readonly string[]): StoredRequest["headers"] {
  return headers.filter(([name]) => !names.includes(name.toLowerCase()));
}
