import type { Dispatcher } from "undici";
import { type Client, OpenClient } from "./client.js";
import { dispatchInTurn } from "./dispatch.js";

/**
 * An interceptor for `dispatcher.compose()`: every request waits for the slot of its URL's bucket, as with `client.fetch`.
 *
 * Interceptors that follow redirects or try again belong behind it: `compose(throttle(client), interceptors.retry())`.
 * Then each of their requests waits for a slot of its own.
 *
 * @example setGlobalDispatcher(new Agent().compose(throttle(client)))
 */
export function throttle(client: Client): Dispatcher.DispatcherComposeInterceptor {
  if (!(client instanceof OpenClient)) throw new TypeError("Expected a client that createClient() has returned");
  return (dispatch) => (options, handler) => dispatchInTurn(client, () => ({}), dispatch, options, handler);
}
