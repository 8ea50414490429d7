import type { IncomingHttpHeaders } from "node:http";

/** Longest pause that a server's header is believed, in ms. */
const MAX_PAUSE_MS = 24 * 3_600_000;

/**
 * How long a server asks not to be called, in ms, or undefined where it does not say so in a way that can be
 * understood. Retry-After is a number of seconds or an HTTP date (RFC 9110, 10.2.3).
 */
export function readRetryAfter(headers: IncomingHttpHeaders, nowMs: number = Date.now()): number | undefined {
  const value = headers["retry-after"]?.trim();
  if (value === undefined || value === "") return undefined;
  const milliseconds = /^\d+$/.test(value) ? Number(value) * 1000 : readDate(value) - nowMs;
  if (!(milliseconds > 0)) return undefined;
  return Math.min(milliseconds, MAX_PAUSE_MS);
}

function readDate(value: string): number {
  // Date.parse takes far more than HTTP dates do; all of those begin with the name of a day.
  return /^(mon|tue|wed|thu|fri|sat|sun)/i.test(value) ? Date.parse(value) : Number.NaN;
}

/** Statuses with which Retry-After means "not now" for every call, not just for this one. */
export const asksToPause = (status: number): boolean => status === 429 || status === 503;
