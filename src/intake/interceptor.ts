import type { Dispatcher } from "undici";
import { watching } from "../send/exchange.js";
import { type Client, OpenClient } from "./client.js";
import { withOneLength } from "./length.js";
import { acquire } from "./permit.js";
import { termsOf } from "./terms.js";

/**
 * An interceptor for `dispatcher.compose()`: every request waits for the slot of its URL's bucket, as with `client.fetch`.
 *
 * Undici does not tell an interceptor when a request that has not begun is aborted, unless it was made with `signal`.
 *
 * @example setGlobalDispatcher(new Agent().compose(throttle(client)))
 */
export function throttle(client: Client): Dispatcher.DispatcherComposeInterceptor {
  if (!(client instanceof OpenClient)) throw new TypeError("Expected a client that createClient() has returned");
  const { context, closing } = client;
  return (dispatch) => (options, handler) => {
    const send = async (): Promise<void> => {
      const { method } = options;
      const url = new URL(options.path, options.origin);
      const headers = headersOf(options.headers);
      const ref = context.session.limits.match(url, { method, headers });
      const signal = "signal" in options && options.signal instanceof AbortSignal ? options.signal : undefined;
      const terms = termsOf(ref.limit, { url, method, headers, body: undefined }, {});
      const permit = await acquire(context, ref, { terms, signal, closing });
      try {
        watching({ started: () => permit.started(), ended: () => permit.release() })(dispatch)(
          withOneLength(options),
          handler,
        );
      } catch (error) {
        permit.release();
        throw error;
      }
    };
    send().catch((error: Error) => refuse(handler, error));
    return true;
  };
}

/** Handlers of undici 6, with which Node 20 and 22 fetch, have other callbacks than those of undici 7. */
function refuse(handler: Dispatcher.DispatchHandler, error: Error): void {
  if (typeof handler.onResponseError === "function") handler.onResponseError(NOTHING_SENT, error);
  else if ("onError" in handler && typeof handler.onError === "function") handler.onError(error);
}

const NOTHING_SENT = { aborted: true, paused: false, reason: null, abort() {}, pause() {}, resume() {} };

/** Undici takes them as an object, a flat list, or pairs. */
function headersOf(source: Dispatcher.DispatchOptions["headers"]): Headers {
  const headers = new Headers();
  if (source === undefined || source === null) return headers;
  if (Array.isArray(source) && typeof source[0] === "string") {
    for (let i = 0; i + 1 < source.length; i += 2) headers.append(String(source[i]), String(source[i + 1]));
    return headers;
  }
  const pairs = Symbol.iterator in source ? source : Object.entries(source);
  for (const pair of pairs) {
    const [name, value] = pair;
    if (value !== undefined) for (const one of [value].flat()) headers.append(String(name), one);
  }
  return headers;
}
