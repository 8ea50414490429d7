/** Longest delay that a Node timer takes. */
const MAX_DELAY = 2 ** 31 - 1;

/**
 * Waits until `now()` (µs) has reached `until`, never less: Node's timers may fire a fraction of a millisecond early.
 * Ends early, without an error, when the signal aborts, or when the clock behind `now` was set back meanwhile: the sleep
 * is then not prolonged by more than a second.
 */
export async function sleepUntil(until: number, now: () => number, signal?: AbortSignal): Promise<void> {
  const expected = (until - now()) / 1000;
  // Clocks differ by much less than a thousandth.
  const latest = performance.now() + expected * 1.001 + 1000;
  while (signal?.aborted !== true) {
    const left = Math.min((until - now()) / 1000, latest - performance.now());
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
