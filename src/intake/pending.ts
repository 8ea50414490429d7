import type { Dispatcher } from "undici";
import { errors } from "../send/undici.js";

type Handler = Dispatcher.DispatchHandler;
type Controller = Dispatcher.DispatchController;

/**
 * A request that waits for its slot, in place of undici's controller. Only when a request begins is its handler given
 * what it can abort it with; here it begins when the wait does, for its handler. What is asked of this controller goes to
 * the real one as soon as there is one.
 */
export class Pending implements Controller {
  readonly #abort = new AbortController();
  readonly #context: Record<string, unknown> = {};
  #real: Pick<Controller, "abort"> & Partial<Controller> = {
    abort: (reason) => this.#abort.abort(reason),
  };
  #begun = false;
  #paused = false;

  /** Ends the wait. */
  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  get aborted(): boolean {
    return this.#real.aborted ?? this.signal.aborted;
  }

  get reason(): Error | null {
    return this.#real.reason ?? (this.signal.aborted ? this.signal.reason : null);
  }

  get paused(): boolean {
    return this.#real.paused ?? this.#paused;
  }

  get rawHeaders(): NonNullable<Controller["rawHeaders"]> | null {
    return this.#real.rawHeaders ?? null;
  }

  get rawTrailers(): NonNullable<Controller["rawTrailers"]> | null {
    return this.#real.rawTrailers ?? null;
  }

  abort(reason: Error = new errors.RequestAbortedError()): void {
    this.#real.abort(reason);
  }

  pause(): void {
    this.#paused = true;
    this.#real.pause?.();
  }

  resume(): void {
    this.#paused = false;
    this.#real.resume?.();
  }

  /** Tells the handler that the request has begun. Handlers of undici 6 have other callbacks than those of undici 7. */
  announce(handler: Handler): void {
    if (typeof handler.onRequestStart === "function") handler.onRequestStart(this, this.#context);
    else handler.onConnect?.((reason) => this.abort(reason));
  }

  /** The same handler, but not told of the beginning that it knows of. */
  resumed<H extends Handler>(handler: H): H {
    const onConnect = (abort: Controller["abort"]): void => this.#begin({ abort });
    const onRequestStart = (controller: Controller, context: unknown): void => {
      Object.assign(this.#context, context);
      this.#begin(controller);
    };
    return new Proxy(handler, {
      get: (target, name) => {
        const value: unknown = Reflect.get(target, name, target);
        if (typeof value !== "function") return value;
        if (name === "onConnect" && !this.#begun) return onConnect;
        if (name === "onRequestStart" && !this.#begun) return onRequestStart;
        return value.bind(target);
      },
    });
  }

  #begin(real: Pick<Controller, "abort"> & Partial<Controller>): void {
    this.#begun = true;
    this.#real = real;
    // Between its slot and now.
    if (this.signal.aborted) real.abort(this.signal.reason);
    else if (this.#paused) real.pause?.();
  }
}
