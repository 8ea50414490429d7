import { getGlobalDispatcher } from "undici";
import type { Context } from "../redis/context.js";
import { watching } from "../send/exchange.js";
import { acquire, type Permit } from "./permit.js";

/** The part of a dispatcher that `fetch` uses, of whatever version of undici that fetch is. */
interface Dispatches {
  dispatch(options: object, handler: object): boolean;
}

/**
 * `fetch` that waits its turn: a permit waits in the FIFO of the URL's bucket, and when its slot comes the request is
 * sent from this process. URL, headers and bodies never reach Redis.
 */
export function throttledFetch(context: Context, closing: AbortSignal): typeof globalThis.fetch {
  // Node compiles its fetch when it is first used, which would make the first start late.
  fetch("data:,").catch(() => {});
  return async (input, init) => {
    const request = input instanceof Request ? input : undefined;
    const url = request?.url ?? String(input);
    const method = init?.method ?? request?.method;
    const headers = new Headers(init?.headers ?? request?.headers);
    const ref = context.session.limits.match(url, { method, headers });
    const signal = init?.signal ?? request?.signal;
    return send(input, init, await acquire(context, ref, { signal, closing }));
  };
}

/**
 * The promise of fetch settles with the headers, but the request is in flight for as long as its body streams. Only the
 * dispatcher knows when that ends, and when the request went out.
 */
async function send(
  input: Parameters<typeof fetch>[0],
  init: RequestInit | undefined,
  permit: Permit,
): Promise<Response> {
  let open = 0;
  let sent = false;
  const started = (): void => {
    if (!sent) permit.started();
    sent = true;
  };
  const ended = (): void => {
    if (--open === 0) permit.release();
  };
  const given: Dispatches | undefined = init !== undefined && "dispatcher" in init ? init.dispatcher : undefined;
  const target = given ?? getGlobalDispatcher();
  const dispatcher: Dispatches = {
    dispatch(options, handler) {
      open++;
      return watching({ started, ended })((o: object, h: object) => target.dispatch(o, h))(options, handler);
    },
  };
  try {
    return await fetch(input, Object.assign({}, init, { dispatcher }));
  } finally {
    // Refused before anything was sent: a bad option, a data: URL.
    if (open === 0) permit.release();
  }
}
