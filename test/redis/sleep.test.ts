import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { sleep } from "../../dist/redis/sleep.js";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

/** µs, of a clock that runs with the timers. */
const now = (): number => performance.now() * 1000;
const HOUR = 3_600_000;

/** Whether it has ended after so many ms. */
async function endedAfter(milliseconds: number, sleeping: Promise<void>): Promise<boolean> {
  let ended = false;
  void sleeping.then(() => (ended = true));
  await vi.advanceTimersByTimeAsync(milliseconds);
  return ended;
}
