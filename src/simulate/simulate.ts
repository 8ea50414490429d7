import { randomBytes } from "node:crypto";
import type { SpillwayErrorCode } from "../errors.js";
import { checkFunction, checkKeys } from "../limits/check.js";
import type { Limits } from "../limits/define.js";
import { Reporter } from "../observe/events.js";
import type { RedisOption } from "../redis/connect.js";
import { checkConnection } from "../redis/context.js";
import { PATIENCE_MS } from "../redis/answer.js";
import { Session } from "../redis/session.js";
import type { Arrival } from "./arrival.js";
import { Run } from "./run.js";
import type { LimitSummary, SimulationSummary } from "./summary.js";
import type { Timeline } from "./timeline.js";

export interface SimulateOptions {
  /**
   * Where Redis is, as for `createClient`.
   *
   * @default `process.env.REDIS_URL`, else an embedded Valkey, except in production
   */
  readonly redis?: RedisOption | undefined;
  /**
   * What the keys of the simulation begin with. They are its own, and deleted at its end.
   *
   * @default "spillway"
   */
  readonly prefix?: string | undefined;
  /** Gets each call as soon as its end is known; then they are not collected. In the order of time within a bucket. */
  readonly onCall?: ((call: SimulatedCall) => void) | undefined;
  /** Ends the simulation; it then fails with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/** What became of one call. Times are in ms on the clock of the arrivals. */
export interface SimulatedCall {
  /** Its place among the arrivals, from 0. */
  readonly index: number;
  readonly at: number;
  /** Undefined where no limit covers the host (`ERR_UNKNOWN_HOST`). */
  readonly limit: string | undefined;
  readonly bucket: string | undefined;
  /** `"sent"`, or the code of its error. */
  readonly outcome: "sent" | SpillwayErrorCode;
  /** When it started; undefined where it did not. */
  readonly startedAt: number | undefined;
  /** From its arrival until it started or was given up, in ms. */
  readonly waited: number;
}

export interface Simulation {
  /** In the order of the arrivals; none where there is `onCall`. */
  readonly calls: readonly SimulatedCall[];
  readonly total: SimulationSummary;
  /** By name, those that had calls, in the order in which they are declared. */
  readonly limits: Readonly<Record<string, LimitSummary>>;
  /** From the first arrival to the last start or refusal, in ms. */
  readonly span: number;
  readonly timeline: Timeline;
}

/** Nobody waits for a single reply here, and a machine may be busy. */
const CONNECT_MS = 5 * PATIENCE_MS;
const OPTIONS = ["redis", "prefix", "onCall", "signal"];

/**
 * Replays arrivals through the very scripts that rule real calls, with the time of the arrivals in the place of that of
 * Redis, and tells what would have been sent, when, and what would have been refused. Calls wait as those of `fetch` and
 * `run` do, and each is answered at once, or after its `duration`.
 *
 * @param arrivals in the order of their times, with at most 100 years between the first and the last.
 * @throws {InvalidLimitError} for a wrong option, {InvalidCallError} for an arrival that is none or out of order, which it
 *   names, and {RedisUnavailableError}.
 */
export async function simulate(
  limits: Limits,
  arrivals: Iterable<Arrival> | AsyncIterable<Arrival>,
  options: SimulateOptions = {},
): Promise<Simulation> {
  const { redis, prefix = "spillway", onCall, signal } = options;
  checkKeys(options, "simulate", OPTIONS);
  checkConnection({ redis, prefix, limits });
  if (onCall !== undefined) checkFunction(onCall, "onCall", "(call) => void");
  const session = new Session(
    { redis, prefix: `${prefix}:simulate:${randomBytes(9).toString("base64url")}`, limits },
    new Reporter(),
  );
  const run = new Run(session, onCall);
  try {
    // For the scripts, who asks has to be alive.
    await session.visible(CONNECT_MS);
    await run.play(arrivals, signal);
    return run.result();
  } finally {
    // What is not deleted goes by itself within a day; the connection may be what has failed.
    await run.erase().catch(() => {});
    await session.close();
  }
}
