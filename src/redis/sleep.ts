/** Longest delay that a Node timer takes. */
const MAX_DELAY = 2 ** 31 - 1;

/**
 * Waits until `now()` (µs) has reached `until`, never less: Node's timers may fire a fraction of a millisecond early.
 * Ends early, without an error, when the signal aborts.
 */
export async function sleepUntil(until: number, now: () => number, signal?: AbortSignal): Promise<void> {
  while (signal?.aborted !== true) {
    const left = (until - now()) / 1000;
    if (left <= 0) return;
    await sleep(Math.min(Math.ceil(left), MAX_DELAY), signal);
  }
}

/** Waits some milliseconds. Ends early, without an error, when the signal aborts. */
export function sleep(milliseconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted === true) {
      resolve();
      return;
    }
    const done = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, milliseconds);
    signal?.addEventListener("abort", done, { once: true });
  });
}
