import { setTimeout as sleep } from "node:timers/promises";

/** Polls until the condition gives something truthy, which it returns; throws after `timeout` ms. */
export async function until<T>(
  condition: () => T | Promise<T>,
  options: { timeout?: number; interval?: number; what?: string } = {},
): Promise<Exclude<T, false | null | undefined | 0 | "">> {
  const { timeout = 5_000, interval = 10, what = String(condition) } = options;
  const deadline = performance.now() + timeout;
  for (;;) {
    const value = await bounded(Promise.resolve(condition()), Math.max(1, deadline - performance.now()), what);
    if (value) return value as Exclude<T, false | null | undefined | 0 | "">;
    if (performance.now() >= deadline) throw new Error(`Not within ${timeout} ms: ${what}`);
    await sleep(interval);
  }
}

/** The promise's own outcome, or an error that says what was waited for after `timeout` ms. */
export async function bounded<T>(promise: Promise<T>, timeout: number, what: string): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`Not within ${Math.ceil(timeout)} ms: ${what}`)), timeout);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
