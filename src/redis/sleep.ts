import { onAbort } from "./abort.js";

/** Longest delay that a Node timer takes; a longer one fires at once. */
const MAX_DELAY_MS = 2 ** 31 - 1;

/** Runs `run` after so many ms, however many these are, unless the returned function is called before. */
export function later(milliseconds: number, run: () => void): () => void {
  const at = performance.now() + milliseconds;
  let timer: NodeJS.Timeout;
  const arm = (left: number): void => {
    timer = setTimeout(wake, Math.min(Math.max(0, left), MAX_DELAY_MS));
  };
  const wake = (): void => {
    const left = at - performance.now();
    // Node's timers may fire a fraction of a millisecond early; that is no reason to wait again.
    if (left > 1) arm(left);
    else run();
  };
  arm(milliseconds);
  return () => clearTimeout(timer);
}

/** Waits some milliseconds. Ends early, without an error, when the signal aborts. */
export function sleep(milliseconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted === true) {
      resolve();
      return;
    }
    const done = (): void => {
      stop();
      stopListening();
      resolve();
    };
    const stop = later(milliseconds, done);
    const stopListening = signal === undefined ? (): void => {} : onAbort(signal, done);
  });
}
