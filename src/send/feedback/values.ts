import {
  ceilMs,
  type Duration,
  formatDuration,
  MAX_DURATION_MS,
  parseDuration,
  UNIT_MS,
} from "../../limits/duration.js";
import type { Reading } from "./types.js";

/** Longest pause that a server is believed at a time; after it one call asks again. */
export const MAX_PAUSE_MS: number = UNIT_MS.d;

/** Quotas may last longer (a month) than anybody is paused. */
export const MAX_WINDOW_MS: number = MAX_DURATION_MS;

const NUMBER = /^-?\d+(?:\.\d+)?$/;
/** As RFC 9110 (5.6.7) and `Date.toString()` write it. `Date.parse` alone would take "Mon 5" for a date. */
const WORDED_DATE = /^(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*,? .*\d\d:\d\d:\d\d/i;
const RFC_3339 = /^\d{4}-\d\d-\d\d[t ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:z|[+-]\d\d:?\d\d)$/i;

/** A decimal number, or undefined. */
function readNumber(text: string | undefined): number | undefined {
  return text !== undefined && NUMBER.test(text) ? Number(text) : undefined;
}

/** A count, of which older drafts put more behind a comma: `100, 100;w=60`. Fewer than none left is none. */
export function readCount(text: string | undefined): number | undefined {
  const count = readNumber(text?.split(/[,;]/, 1)[0]?.trim());
  return count === undefined ? undefined : Math.min(Math.max(0, Math.floor(count)), Number.MAX_SAFE_INTEGER);
}

/** Ms until a moment that is given as seconds, as a date, as an epoch time or as a duration; undefined for neither. */
function readUntil(text: string, time: number): number | undefined {
  const value = readNumber(text);
  if (value !== undefined) return untilNumber(value, time);
  if (WORDED_DATE.test(text)) return until(readDate(text), time);
  if (RFC_3339.test(text)) return until(Date.parse(text), time);
  return readDuration(text);
}

/** Nobody's window lasts 31 years: what looks like it is an epoch time, in seconds or in ms. */
function untilNumber(value: number, time: number): number {
  if (value > 1e12) return value - time;
  return value > 1e9 ? value * 1000 - time : value * 1000;
}

const until = (moment: number, time: number): number | undefined => (Number.isNaN(moment) ? undefined : moment - time);

/** What ends with its time, or with the year behind that. */
const WITHOUT_ZONE = /\d\d:\d\d:\d\d(?:\.\d+)?(?: [ap]m)?(?: \d{4})?$/i;

/**
 * The moment of an HTTP date, NaN for what is none. The oldest of its three forms has no zone, and means GMT as the others
 * do; some servers name another zone.
 */
export function readDate(text: string): number {
  if (!WORDED_DATE.test(text)) return Number.NaN;
  return Date.parse(WITHOUT_ZONE.test(text) ? `${text} GMT` : text);
}

const isDuration = (text: string): text is Extract<Duration, string> => /^(?:\d+(?:\.\d+)?(?:d|h|m|s|ms))+$/.test(text);

/** `12ms`, `6s`, `1m30.5s`, `6m0s`. */
function readDuration(text: string): number | undefined {
  if (!isDuration(text)) return undefined;
  try {
    return parseDuration(text, "", { min: 0, max: Number.MAX_SAFE_INTEGER });
  } catch {
    return undefined;
  }
}

/** How long a header asks to wait: whole ms from 0 to `max`, anything beyond with a warning. */
export function readWait(reading: Reading, header: string, max: number): number | undefined {
  const text = reading.get(header);
  const wait = text === undefined ? undefined : readUntil(text, reading.time);
  if (text === undefined || wait === undefined) return undefined;
  // A date that has just passed is nothing to speak of: clocks differ, and answers take their time.
  if (text.startsWith("-")) reading.warn(`${header}: ${text} is negative, taken as 0`);
  return bounded(reading, `${header}: ${text}`, wait, max);
}

/** Whole ms from 0 to `max`, with a warning when it was more. */
export function bounded(reading: Reading, what: string, ms: number, max: number): number {
  if (ms > max) reading.warn(`${what} is more than ${formatDuration(max)}, taken as that`);
  return Math.min(max, Math.max(0, ceilMs(ms)));
}
