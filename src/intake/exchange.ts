import { getGlobalDispatcher } from "undici";

/** The callbacks by which a dispatcher, of any version, says that an exchange is over. */
const ENDS: ReadonlySet<string | symbol> = new Set(["onComplete", "onError", "onResponseEnd", "onResponseError"]);

/** The part of a dispatcher that `fetch` uses, of whatever version of undici that fetch is. */
interface Dispatches {
  dispatch(options: object, handler: object): boolean;
}

/**
 * Sends as `fetch` does, and calls `ended` once the response has been received to its end, or the exchange has failed.
 * The promise of fetch settles with the headers, but a request is in flight for as long as its body streams.
 *
 * @param dispatcher the one that the caller gave, else the global one.
 */
export function watchExchange(ended: () => void, dispatcher?: Dispatches): { dispatcher: Dispatches; sent(): boolean } {
  const target: Dispatches = dispatcher ?? getGlobalDispatcher();
  let open = 0;
  let sent = false;
  const watching: Dispatches = {
    dispatch(options, handler) {
      sent = true;
      open++;
      let over = false;
      const onEnd = (): void => {
        if (over) return;
        over = true;
        if (--open === 0) ended();
      };
      return target.dispatch(options, watch(handler, onEnd));
    },
  };
  return { dispatcher: watching, sent: () => sent };
}

function watch<T extends object>(handler: T, onEnd: () => void): T {
  return new Proxy(handler, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name, target);
      if (typeof value !== "function") return value;
      if (!ENDS.has(name)) return value.bind(target);
      return (...args: unknown[]): unknown => {
        onEnd();
        return Reflect.apply(value, target, args);
      };
    },
  });
}
