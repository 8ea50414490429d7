import type { EventEmitter } from "node:events";
import { headersOf } from "./feedback/headers.js";
import type { FeedbackResponse } from "./feedback/types.js";
import { util } from "./undici.js";

/** What one exchange tells while it goes on. */
export interface ExchangeEvents {
  /** The request is being written to a connection; before that, a connection may have had to be made. */
  readonly started?: () => void;
  /** Status and headers of the response are here. */
  readonly answered?: (response: FeedbackResponse) => void;
  /** A piece of the body, as it came. */
  readonly received?: (chunk: unknown) => void;
  /** The response has been received to its end. */
  readonly completed?: () => void;
  /** The response has been received to its end, the exchange has failed, or the connection it was upgraded to is closed. */
  readonly ended?: () => void;
}

/** An interceptor, for `dispatcher.compose()`, that tells how exchanges go and changes nothing about them. */
export function watching(
  events: ExchangeEvents,
): <O, H extends object, R>(dispatch: (options: O, handler: H) => R) => (options: O, handler: H) => R {
  return (dispatch) => (options, handler) => dispatch(options, watch(handler, events));
}

type Tell = (...args: readonly unknown[]) => void;

function watch<H extends object>(handler: H, events: ExchangeEvents): H {
  const tellers = tellersOf(events);
  return new Proxy(handler, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name, target);
      if (typeof value !== "function") return value;
      const tell = tellers.get(name);
      if (tell === undefined) return value.bind(target);
      return (...args: readonly unknown[]): unknown => {
        try {
          return Reflect.apply(value, target, args);
        } finally {
          tell(...args);
        }
      };
    },
  });
}

/** The callbacks of a dispatcher's handler, of undici 6 (which Node 20 and 22 fetch with) and of undici 7. */
function tellersOf(events: ExchangeEvents): ReadonlyMap<string | symbol, Tell> {
  let begun = false;
  let over = false;
  const ended = (): void => {
    if (!over) events.ended?.();
    over = true;
  };
  const started = (): void => {
    if (!begun) events.started?.();
    begun = true;
  };
  const answered = (status: unknown, headers: () => Headers): void => {
    // Before the response itself there may be informational ones.
    if (typeof status === "number" && status >= 200) events.answered?.({ status, headers: headersOf(headers()) });
  };
  const completed = (): void => {
    events.completed?.();
    ended();
  };
  const upgraded = (socket: unknown): void => {
    if (isOpen(socket)) socket.once("close", ended);
    else ended();
  };
  return new Map<string, Tell>([
    ["onConnect", started],
    ["onRequestStart", started],
    ["onHeaders", (status, raw) => answered(status, () => (Array.isArray(raw) ? util.parseHeaders(raw) : {}))],
    ["onResponseStart", (_, status, headers) => answered(status, () => (isHeaders(headers) ? headers : {}))],
    ["onUpgrade", (_status, _raw, socket) => upgraded(socket)],
    ["onRequestUpgrade", (_controller, _status, _headers, socket) => upgraded(socket)],
    ["onData", (chunk) => events.received?.(chunk)],
    ["onResponseData", (_, chunk) => events.received?.(chunk)],
    ["onComplete", completed],
    ["onResponseEnd", completed],
    ["onError", ended],
    ["onResponseError", ended],
  ]);
}

type Headers = Readonly<Record<string, string | readonly string[] | undefined>>;

const isFunction = (value: unknown): value is (...args: readonly unknown[]) => unknown => typeof value === "function";
const isObject = (value: unknown): value is object => typeof value === "object" && value !== null;
const isHeaders = (value: unknown): value is Headers => isObject(value);
const isOpen = (value: unknown): value is EventEmitter =>
  isObject(value) && "once" in value && isFunction(value.once) && !("destroyed" in value && value.destroyed === true);
