import type { CallTerms } from "../queue/terms.js";
import type { Context } from "../redis/context.js";
import { watching } from "../send/exchange.js";
import { getGlobalDispatcher } from "../send/undici.js";
import { withOneLength } from "./length.js";
import { acquire, type Permit } from "./permit.js";
import { termsOf } from "./terms.js";

/** The part of a dispatcher that `fetch` uses, of whatever version of undici that fetch is. */
interface Dispatches {
  dispatch(options: object, handler: object): boolean;
  /** Of a MockAgent: it wants bodies as they were given, and not as streams. */
  readonly isMockActive?: boolean;
}

/** {@link CallTerms} in the init of fetch, whose own `priority` knows "auto" in place of "normal". */
export interface FetchTerms extends Omit<CallTerms, "priority"> {
  readonly priority?: CallTerms["priority"] | "auto";
}

/** `fetch`, whose init may say besides how the call waits. */
export type ThrottledFetch = (
  input: Parameters<typeof globalThis.fetch>[0],
  init?: Omit<RequestInit, "priority"> & FetchTerms,
) => Promise<Response>;

/**
 * `fetch` that waits its turn: a permit waits in the FIFO of the URL's bucket, and when its slot comes the request is
 * sent from this process. URL, headers and bodies never reach Redis.
 */
export function throttledFetch(context: Context, closing: AbortSignal): ThrottledFetch {
  // The fetch of now: whoever puts this one into its place must not make it call itself.
  const { fetch } = globalThis;
  // Node compiles its fetch when it is first used, which would make the first start late.
  warmUp(fetch).catch(() => {});
  return async (input, init) => {
    const request = input instanceof Request ? input : undefined;
    const url = input instanceof Request ? input.url : String(input);
    const method = (init?.method ?? request?.method)?.toUpperCase();
    const headers = new Headers(init?.headers ?? request?.headers);
    const ref = context.session.limits.match(url, { method, headers });
    // `null` in an init takes away the signal of its Request.
    const signal = init?.signal === undefined ? request?.signal : (init.signal ?? undefined);
    const { priority, cost, maxWait }: FetchTerms = init ?? {};
    const wished = { priority: priority === "auto" ? "normal" : priority, cost, maxWait };
    const body = typeof init?.body === "string" ? init.body : undefined;
    const terms = termsOf(ref.limit, { url: new URL(url), method: method ?? "GET", headers, body }, wished);
    return send(fetch, input, init, await acquire(context, ref, { terms, signal, closing }));
  };
}

async function warmUp(fetch: typeof globalThis.fetch): Promise<void> {
  await fetch("data:,");
}

/**
 * The promise of fetch settles with the headers, but the request is in flight for as long as its body streams. Only the
 * dispatcher knows when that ends, and when the request went out.
 */
async function send(
  fetch: typeof globalThis.fetch,
  input: Parameters<typeof fetch>[0],
  init: RequestInit | undefined,
  permit: Permit,
): Promise<Response> {
  // One for each hop of a redirect; between two of them none is open, and the flight is not over.
  let open = 0;
  let answered = false;
  let sent = false;
  const started = (): void => {
    if (!sent) permit.started();
    sent = true;
  };
  const ended = (): void => {
    if (--open === 0 && answered) permit.release();
  };
  const given: RequestInit & { readonly dispatcher?: Dispatches } = init ?? {};
  const target: Dispatches = given.dispatcher ?? getGlobalDispatcher();
  const dispatcher: Dispatches = {
    isMockActive: target.isMockActive === true,
    dispatch(options, handler) {
      open++;
      try {
        return watching({ started, ended })((o: object, h: object) => target.dispatch(o, h))(
          withOneLength(options),
          handler,
        );
      } catch (error) {
        ended();
        throw error;
      }
    },
  };
  try {
    const response = await fetch(input, withDispatcher(given, dispatcher));
    permit.answered({ status: response.status, headers: response.headers });
    return response;
  } finally {
    answered = true;
    // The whole body is here already, or nothing was sent: a bad option, say.
    if (open === 0) permit.release();
  }
}

/** What fetch reads of an init, whose properties may also be getters of its class, as those of a Request are. */
const MEMBERS: readonly string[] = [
  "method",
  "headers",
  "body",
  "duplex",
  "signal",
  "redirect",
  "keepalive",
  "credentials",
  "mode",
  "cache",
  "integrity",
  "referrer",
  "referrerPolicy",
];

/** A plain object, because a fetch that wraps the real one may copy it. */
function withDispatcher(init: RequestInit, dispatcher: Dispatches): RequestInit {
  const members = MEMBERS.filter((member) => member in init).map((member) => [member, Reflect.get(init, member)]);
  return Object.assign(Object.fromEntries(members), init, { dispatcher });
}
