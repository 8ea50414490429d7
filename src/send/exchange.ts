/** What one exchange tells while it goes on. */
export interface ExchangeEvents {
  /** The request is being written to a connection; before that, a connection may have had to be made. */
  readonly started?: () => void;
  /** The response has been received to its end, or the exchange has failed. */
  readonly ended?: () => void;
}

/** The callbacks of a dispatcher's handler, of undici 6 (which Node 20 and 22 fetch with) and of undici 7. */
const STARTS: ReadonlySet<string | symbol> = new Set(["onConnect", "onRequestStart"]);
const ENDS: ReadonlySet<string | symbol> = new Set(["onComplete", "onError", "onResponseEnd", "onResponseError"]);

/** An interceptor, for `dispatcher.compose()`, that tells how exchanges go and changes nothing about them. */
export function watching(
  events: ExchangeEvents,
): <O, H extends object, R>(dispatch: (options: O, handler: H) => R) => (options: O, handler: H) => R {
  return (dispatch) => (options, handler) => dispatch(options, watch(handler, events));
}

function watch<H extends object>(handler: H, { started, ended }: ExchangeEvents): H {
  let over = false;
  const endOnce = (): void => {
    if (!over) ended?.();
    over = true;
  };
  return new Proxy(handler, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name, target);
      if (typeof value !== "function") return value;
      const tell = STARTS.has(name) ? started : ENDS.has(name) ? endOnce : undefined;
      if (tell === undefined) return value.bind(target);
      return (...args: unknown[]): unknown => {
        tell();
        return Reflect.apply(value, target, args);
      };
    },
  });
}
