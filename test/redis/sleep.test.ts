import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { sleep, sleepUntil } from "../../dist/redis/sleep.js";

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

describe("sleepUntil", () => {
  test.each([0.4, 1, 1.0001, 17.3, HOUR])("%d ms: never early, and at most a ms late", async (milliseconds) => {
    const sleeping = sleepUntil(now() + milliseconds * 1000, now);
    expect(await endedAfter(Math.ceil(milliseconds) - 1, sleeping)).toBe(false);
    expect(await endedAfter(1, sleeping)).toBe(true);
  });

  test("a timer that fires early is not believed", async () => {
    let behind = 700;
    const slow = (): number => now() - behind;
    const sleeping = sleepUntil(slow() + 10_000, slow);
    behind = 1500;
    expect(await endedAfter(10, sleeping)).toBe(false);
    expect(await endedAfter(1, sleeping)).toBe(true);
  });

  test("longer than a timer can be", async () => {
    const month = 40 * 24 * HOUR;
    const sleeping = sleepUntil(now() + month * 1000, now);
    expect(await endedAfter(month - 1, sleeping)).toBe(false);
    expect(await endedAfter(1, sleeping)).toBe(true);
  });

  test("what has passed is not waited for", async () => {
    await sleepUntil(now(), now);
    await sleepUntil(now() - 1e9, now);
    expect(vi.getTimerCount()).toBe(0);
  });

  test("a clock that is set back meanwhile does not prolong it by more than a second", async () => {
    let back = 0;
    const server = (): number => now() - back;
    const sleeping = sleepUntil(server() + 10_000_000, server);
    await vi.advanceTimersByTimeAsync(5000);
    back = HOUR * 1000;
    expect(await endedAfter(4999, sleeping)).toBe(false);
    expect(await endedAfter(1100, sleeping)).toBe(true);
  });

  test("a clock that is set forward ends it when it next looks", async () => {
    let ahead = 0;
    const server = (): number => now() + ahead;
    const sleeping = sleepUntil(server() + 50_000, server);
    ahead = HOUR * 1000;
    expect(await endedAfter(50, sleeping)).toBe(true);
  });

  test("ends when the signal aborts, without an error or a timer left behind", async () => {
    const abort = new AbortController();
    const sleeping = sleepUntil(now() + 1e9, now, abort.signal);
    abort.abort();
    expect(await endedAfter(0, sleeping)).toBe(true);
    await sleepUntil(now() + 1e9, now, abort.signal);
    await sleep(1e6, abort.signal);
    expect(vi.getTimerCount()).toBe(0);
  });
});
