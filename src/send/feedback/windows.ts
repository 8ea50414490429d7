import type { Heard, QuotaPolicy, Reading } from "./types.js";
import { bounded, MAX_PAUSE_MS, MAX_WINDOW_MS, readCount, readWait } from "./values.js";

/** Three headers that describe one window of a server: how many in all, how many are left, when it is fresh. */
export interface WindowHeaders {
  /** Their names, where `*` stands for `limit`, `remaining`, and `reset-after` or `reset`. */
  readonly names: string;
  /**
   * What is counted.
   *
   * @default "requests"
   */
  readonly unit?: string | undefined;
  /** The length of the window in ms, where the vendor documents it. */
  readonly perMs?: number | undefined;
}

/** One window as it stands. */
export interface Window {
  readonly name: string;
  readonly unit: string;
  readonly remaining: number | undefined;
  readonly resetAfter: number | undefined;
  readonly policy?: QuotaPolicy | undefined;
}

/** Reads the windows that one vendor has. */
export function readWindows(reading: Reading, source: string, rows: readonly WindowHeaders[]): Heard | undefined {
  const windows = rows.map((row) => readOne(reading, row)).filter((window) => window !== undefined);
  return windows.length === 0 ? undefined : summarize(reading, source, windows);
}

/**
 * Several windows that hold at once. One with nothing left pauses until it is fresh, whatever it counts; what remains
 * is that of the tightest one that counts requests.
 */
export function summarize(reading: Reading, source: string, windows: readonly Window[]): Heard {
  const requests = windows.filter(({ unit, remaining }) => unit === "requests" && remaining !== undefined);
  const tightest = requests.toSorted((a, b) => (a.remaining ?? 0) - (b.remaining ?? 0))[0];
  const pauses = windows.map((window) => pauseOf(reading, window)).filter((pause) => pause !== undefined);
  const policies = windows.map(({ policy }) => policy).filter((policy) => policy !== undefined);
  return {
    source,
    pauseFor: pauses.length > 0 ? Math.max(...pauses) : undefined,
    remaining: tightest?.remaining,
    resetAfter: tightest?.resetAfter,
    policies: policies.length > 0 ? policies : undefined,
  };
}

/** Without a time there is nothing to wait for. A refusal that names nothing but a time means that time. */
function pauseOf(reading: Reading, { name, remaining, resetAfter }: Window): number | undefined {
  const spent = remaining === 0 || (remaining === undefined && reading.status === 429);
  if (!spent || resetAfter === undefined) return undefined;
  return bounded(reading, `${name}: the pause until its reset`, resetAfter, MAX_PAUSE_MS);
}

function readOne(reading: Reading, { names, unit = "requests", perMs }: WindowHeaders): Window | undefined {
  const name = (part: string): string => names.replace("*", part);
  const wait = (header: string): number | undefined => readWait(reading, header, MAX_WINDOW_MS);
  const limit = readCount(reading.get(name("limit")));
  const remaining = readCount(reading.get(name("remaining")));
  const resetAfter = wait(name("reset-after")) ?? wait(name("reset"));
  if (limit === undefined && remaining === undefined && resetAfter === undefined) return undefined;
  const policy = limit === undefined || limit === 0 ? undefined : { name: name("limit"), limit, perMs, unit };
  return { name: names, unit, remaining, resetAfter, policy };
}
