import type { Context } from "../redis/context.js";
import { watchExchange } from "./exchange.js";
import { acquire } from "./permit.js";

/**
 * `fetch` that waits its turn: a permit waits in the FIFO of the URL's bucket, and when its slot comes the request is
 * sent from this process. URL, headers and bodies never reach Redis.
 */
export function throttledFetch(context: Context, closing: AbortSignal): typeof globalThis.fetch {
  return async (input, init) => {
    const request = input instanceof Request ? input : undefined;
    const url = request?.url ?? String(input);
    const method = init?.method ?? request?.method;
    const headers = new Headers(init?.headers ?? request?.headers);
    const ref = context.session.limits.match(url, { method, headers });
    const signal = init?.signal ?? request?.signal;
    const permit = await acquire(context, ref, { signal, closing });
    return send(input, init, permit.counted ? permit.release : undefined);
  };
}

async function send(
  input: Parameters<typeof fetch>[0],
  init: RequestInit | undefined,
  release: (() => void) | undefined,
): Promise<Response> {
  if (release === undefined) return fetch(input, init);
  const given = init !== undefined && "dispatcher" in init ? init.dispatcher : undefined;
  const { dispatcher, sent } = watchExchange(release, given);
  try {
    return await fetch(input, Object.assign({}, init, { dispatcher }));
  } finally {
    // Refused before anything was sent: a bad option, a data: URL.
    if (!sent()) release();
  }
}
