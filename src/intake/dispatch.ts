import { Readable } from "node:stream";
import type { Dispatcher } from "undici";
import { InvalidCallError } from "../errors.js";
import type { Limit } from "../limits/options.js";
import type { Wished } from "../queue/terms.js";
import type { Context } from "../redis/context.js";
import { type ExchangeEvents, watching } from "../send/exchange.js";
import type { FeedbackResponse } from "../send/feedback/read.js";
import { Tap } from "../send/tap.js";
import { withOneLength } from "./length.js";
import { Pending } from "./pending.js";
import { acquire, type Permit } from "./permit.js";
import { termsOf } from "./terms.js";

type Options = Dispatcher.DispatchOptions;
type Handler = Dispatcher.DispatchHandler;

/** As `Dispatcher.dispatch`, of whatever version of undici. */
export type Dispatch = (options: Options, handler: Handler) => boolean;

/** What throttling needs of a client. */
export interface Door {
  readonly context: Context;
  readonly closing: AbortSignal;
}

/**
 * Good for one request: the dispatcher below may be throttled by the same client, and one slot is enough. What lies between
 * the two may try again by itself, so it is the lower one that sees how far that request has come.
 */
const PASS: unique symbol = Symbol("spillway");

interface Pass {
  readonly context: Context;
  readonly permit: Permit;
  used: boolean;
}

interface Passing extends Options {
  readonly [PASS]?: Pass;
}

/** Dispatches a request whose slot has come. The permit is in flight until the response has ended. */
export function dispatchNow(
  { context }: Door,
  permit: Permit,
  dispatch: Dispatch,
  options: Options,
  handler: Handler,
): boolean {
  const pass: Pass = { context, permit, used: false };
  const passing: Passing = { ...withOneLength(options), [PASS]: pass };
  try {
    return watching(ears(permit, () => !pass.used))(dispatch)(passing, handler);
  } catch (error) {
    permit.release();
    throw error;
  }
}

/**
 * Hears the response as it goes to its caller, whose the body is.
 *
 * @param isNearest whether no dispatcher below, throttled by the same client, watches the request in place of this one.
 */
function ears(permit: Permit, isNearest: () => boolean): ExchangeEvents {
  let heard: { readonly head: FeedbackResponse; readonly tap: Tap } | undefined;
  const tell = async ({ head, tap }: NonNullable<typeof heard>): Promise<void> => {
    const body = await tap.text(head);
    if (body !== undefined) permit.ended({ ...head, body });
  };
  return {
    started: () => isNearest() && permit.started(),
    answered: (response) => {
      if (!isNearest()) return;
      permit.answered(response);
      if (permit.listens(response.status)) heard = { head: response, tap: new Tap() };
    },
    received: (chunk) => heard?.tap.hear(chunk),
    completed: () => heard && void tell(heard),
    ended: () => permit.release(),
  };
}

/**
 * Dispatches a request when the slot of its URL's bucket has come. Whatever speaks against it goes to the handler, which
 * can abort the request while it waits, too.
 *
 * @param wishedIn how its caller wants it to wait under a limit.
 */
export function dispatchInTurn(
  door: Door,
  wishedIn: (limit: Limit) => Wished,
  dispatch: Dispatch,
  options: Passing,
  handler: Handler,
): boolean {
  const { [PASS]: pass } = options;
  if (pass?.context === door.context && !pass.used) {
    pass.used = true;
    return dispatchNow(door, pass.permit, dispatch, options, handler);
  }
  const pending = new Pending();
  const send = async (): Promise<void> => {
    pending.announce(handler);
    const { method } = options;
    const url = urlOf(options);
    const headers = headersOf(options.headers);
    const ref = door.context.session.limits.match(url, { method, headers });
    const body = typeof options.body === "string" ? options.body : undefined;
    const terms = termsOf(ref.limit, { url, method, headers, body }, wishedIn(ref.limit));
    const { signal } = pending;
    const unguard = guard(options.body, pending);
    const permit = await acquire(door.context, ref, { terms, signal, closing: door.closing }).finally(unguard);
    dispatchNow(door, permit, dispatch, options, pending.resumed(handler));
  };
  send().catch((error: unknown) => refuse(handler, error instanceof Error ? error : new Error(String(error))));
  return true;
}

/** Undici listens to a body from the moment when it gets it, and here it gets it late. */
function guard(body: Options["body"], pending: Pending): () => void {
  if (!(body instanceof Readable)) return () => {};
  const onError = (error: Error): void => pending.abort(error);
  body.on("error", onError);
  return () => body.off("error", onError);
}

/** Handlers of undici 6, with which Node 20 and 22 fetch, have other callbacks than those of undici 7. */
function refuse(handler: Handler, error: Error): void {
  if (typeof handler.onResponseError === "function") handler.onResponseError(NOTHING_SENT, error);
  else handler.onError?.(error);
}

/** An aborted one, so that no handler tries again what was refused. */
const NOTHING_SENT = { aborted: true, paused: false, reason: null, abort() {}, pause() {}, resume() {} };

function urlOf({ origin, path, method }: Options): URL {
  if (origin === undefined) {
    throw new InvalidCallError("Expected a request with `origin`: undici's Client and Pool do not tell theirs");
  }
  const server = new URL(origin);
  // It names where a proxy shall connect to; the proxy is whom it asks.
  if (method === "CONNECT") return server;
  // As a reference, what begins with two slashes would name another host.
  if (path.startsWith("/")) return new URL(server.origin + path);
  return URL.canParse(path) ? new URL(path) : server;
}

/** Undici takes them as an object, a flat list, or pairs. What is wrong in them, it will say itself. */
function headersOf(source: Options["headers"]): Headers {
  const headers = new Headers();
  const add = (name: unknown, value: unknown): void => {
    try {
      for (const one of [value].flat()) headers.append(String(name), String(one));
    } catch {
      // Not one that a `key` function could look at.
    }
  };
  if (source === undefined || source === null) return headers;
  if (Array.isArray(source) && typeof source[0] === "string") {
    for (let i = 0; i + 1 < source.length; i += 2) add(source[i], source[i + 1]);
    return headers;
  }
  const pairs = Symbol.iterator in source ? source : Object.entries(source);
  for (const [name, value] of pairs) if (value !== undefined) add(name, value);
  return headers;
}
