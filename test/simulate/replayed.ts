import { type Arrival, defineLimits, type LimitOptions, simulate, type SimulatedCall } from "spillway";
import { redisUrl, uniquePrefix } from "../helpers/redis.js";

/** Of the limit "api", whose every bucket is the only one. */
export const replay = (options: LimitOptions, arrivals: Iterable<Arrival>) =>
  simulate(defineLimits({ api: options }), arrivals, { redis: redisUrl(), prefix: uniquePrefix() });

/** Calls that come at these times, in ms. */
export const at = (...times: readonly number[]): Arrival[] => times.map((time) => ({ at: time }));

export const atOnce = (count: number, time = 0): Arrival[] => Array.from({ length: count }, () => ({ at: time }));

/** When each call started, or why it did not and after how long. */
export const ends = (calls: readonly SimulatedCall[]) =>
  calls.map(({ outcome, startedAt, waited }) => startedAt ?? `${outcome} after ${waited}`);
