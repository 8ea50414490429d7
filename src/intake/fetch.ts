import { SpillwayError } from "../errors.js";
import type { Limit } from "../limits/options.js";
import type { CallTerms, Wished } from "../queue/terms.js";
import { getGlobalDispatcher } from "../send/undici.js";
import { type Dispatch, dispatchInTurn, dispatchNow, type Door } from "./dispatch.js";
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
export function throttledFetch(door: Door): ThrottledFetch {
  const { context, closing } = door;
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
    const permit = await acquire(context, ref, { terms, signal, closing }).catch((error: unknown) => {
      if (signal?.aborted === true) letGo(init?.body ?? request?.body, error).catch(() => {});
      throw error;
    });
    const given: RequestInit & { readonly dispatcher?: Dispatches } = init ?? {};
    // A redirect may lead to a host that counts something else.
    const wishedIn = (limit: Limit): Wished => (limit === ref.limit ? wished : { ...wished, cost: undefined });
    const dispatcher = throttling(door, wishedIn, given.dispatcher ?? getGlobalDispatcher(), permit);
    try {
      return await fetch(input, withDispatcher(given, dispatcher));
    } catch (error) {
      // Fetch hides it in an error of its own.
      if (error instanceof TypeError && error.cause instanceof SpillwayError) throw error.cause;
      throw error;
    } finally {
      // Where nothing was sent: a bad option, say.
      dispatcher.release();
    }
  };
}

/**
 * As fetch does with the body of what is given up: whoever feeds it learns that nobody reads it. (What was refused may be
 * sent again.)
 */
async function letGo(body: RequestInit["body"], reason: unknown): Promise<void> {
  // A Response knows how to read every kind of body that fetch takes.
  if (typeof body === "object") await new Response(body).body?.cancel(reason);
}

async function warmUp(fetch: typeof globalThis.fetch): Promise<void> {
  await fetch("data:,");
}

interface Throttled {
  readonly dispatch: Dispatch;
  readonly isMockActive: boolean;
  /** Gives the permit back if nothing was dispatched. */
  release(): void;
}

/**
 * The promise of fetch settles with the headers, but the request is in flight for as long as its body streams. Only the
 * dispatcher knows when that ends, when the request went out, and where a redirect leads: it is asked once for each hop.
 */
function throttling(door: Door, wishedIn: (limit: Limit) => Wished, target: Dispatches, permit: Permit): Throttled {
  let first: Permit | undefined = permit;
  const dispatch: Dispatch = (options, handler) => {
    const onward: Dispatch = (o, h) => target.dispatch(o, h);
    if (first === undefined) return dispatchInTurn(door, wishedIn, onward, options, handler);
    const given = first;
    first = undefined;
    return dispatchNow(door, given, onward, options, handler);
  };
  return { dispatch, isMockActive: target.isMockActive === true, release: () => first?.release() };
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
function withDispatcher(init: RequestInit, dispatcher: Throttled): RequestInit {
  const members = MEMBERS.filter((member) => member in init).map((member) => [member, Reflect.get(init, member)]);
  return Object.assign(Object.fromEntries(members), init, { dispatcher });
}
