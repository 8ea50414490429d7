import fc from "fast-check";
import { describe, expect, test, vi } from "vitest";
import { ServerClock } from "../../dist/redis/clock.js";

/** The clock's estimate of the server's time at this moment of the local clock (µs). */
function estimate(clock: ServerClock, local: number): number {
  const now = vi.spyOn(performance, "now").mockReturnValue(local / 1000);
  try {
    return clock.now();
  } finally {
    now.mockRestore();
  }
}

const delay = fc.integer({ min: 20, max: 50_000 });
const exchanges = fc.array(fc.record({ pause: fc.nat(3_000_000), there: delay, back: delay }), {
  minLength: 1,
  maxLength: 60,
});
const SERVER = 1_800_000_000_000_000;

describe("the server's clock", () => {
  test("is known as well as the fastest round trip allows, with any jitter and drift", () => {
    const drifts = fc.double({ min: -50e-6, max: 50e-6, noNaN: true });
    fc.assert(
      fc.property(exchanges, drifts, fc.integer({ min: -1e9, max: 1e9 }), (trips, drift, offset) => {
        const clock = new ServerClock();
        const server = (local: number): number => SERVER + offset + local * (1 + drift);
        let local = 1_000_000;
        const bounds: { at: number; roundTrip: number }[] = [];
        for (const { pause, there, back } of trips) {
          const sent = local + pause;
          local = sent + there + back;
          clock.sample(sent, server(sent + there), local);
          bounds.push({ at: local, roundTrip: there + back });
          // No worse than any single sample, each of which fades with the drift that there may be.
          const best = Math.min(...bounds.map((one) => one.roundTrip / 2 + (local - one.at) * 200e-6));
          expect(Math.abs(estimate(clock, local) - server(local))).toBeLessThanOrEqual(best + 2);
        }
      }),
      { numRuns: 200 },
    );
  });

  test("is known anew from the next reply when it has been set, or another server answers", () => {
    const jumps = fc.integer({ min: 200_000, max: 4e9 }).chain((by) => fc.constantFrom(by, -by));
    fc.assert(
      fc.property(exchanges, jumps, delay, delay, (trips, jump, there, back) => {
        const clock = new ServerClock();
        let local = 0;
        for (const trip of trips) {
          const sent = local + trip.pause;
          local = sent + trip.there + trip.back;
          clock.sample(sent, SERVER + sent + trip.there, local);
        }
        const sent = local + 1000;
        local = sent + there + back;
        clock.sample(sent, SERVER + jump + sent + there, local);
        expect(Math.abs(estimate(clock, local) - (SERVER + jump + local))).toBeLessThanOrEqual((there + back) / 2 + 1);
      }),
      { numRuns: 200 },
    );
  });

  test("a slow reply does not spoil what a fast one has told", () => {
    const clock = new ServerClock();
    clock.sample(0, SERVER + 50, 100);
    clock.sample(1000, SERVER + 1000 + 400_000, 501_000);
    expect(Math.abs(estimate(clock, 501_000) - (SERVER + 501_000))).toBeLessThanOrEqual(50 + 51);
  });

  test("is not known before the first reply", () => {
    const clock = new ServerClock();
    expect(clock.synchronized).toBe(false);
    clock.sample(0, SERVER, 10);
    expect(clock.synchronized).toBe(true);
  });

  test("the round trip follows what is measured", () => {
    const clock = new ServerClock();
    for (let i = 0; i < 60; i++) clock.sample(i * 1000, SERVER + i * 1000, i * 1000 + 300);
    expect(clock.roundTrip).toBeGreaterThan(299);
    expect(clock.roundTrip).toBeLessThan(302);
  });
});
