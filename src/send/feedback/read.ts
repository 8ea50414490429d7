import { ietf } from "./ietf.js";
import { hearOwn } from "./own.js";
import { readRetryAfter, readShouldRetry } from "./retry-after.js";
import type { Feedback, FeedbackReader, FeedbackResponse, Heard, OwnFeedback, Reading } from "./types.js";
import { bounded, MAX_PAUSE_MS, readDate } from "./values.js";
import { vendors } from "./vendors.js";

export type { Feedback, FeedbackReader, FeedbackResponse, QuotaPolicy } from "./types.js";
export { MAX_PAUSE_MS } from "./values.js";

/** Statuses with which Retry-After means every call; with any other (a lock, a redirect, a job) it means this one. */
export const REFUSALS: readonly number[] = [403, 420, 429, 503, 529];

export interface FeedbackReading {
  /** Undefined where the response says nothing. */
  readonly feedback: Feedback | undefined;
  /** Values that cannot be meant, and what was made of them. */
  readonly warnings: readonly string[];
}

/**
 * Reads from one of its responses how a server wants to be called. Never throws; what is malformed is ignored.
 *
 * @param own the reader of the limit's `feedback` option, which is heard before all others.
 */
export function readFeedback(response: FeedbackResponse, own?: FeedbackReader): FeedbackReading {
  const warnings = new Set<string>();
  const reading = normalize(response, (message) => warnings.add(message));
  const feedback = combine(reading, hearDialects(reading), own && hearOwn(own, response, reading));
  return { feedback, warnings: [...warnings] };
}

function normalize({ status, headers, body = "", now }: FeedbackResponse, warn: Reading["warn"]): Reading {
  const get = (name: string): string | undefined => {
    const value: unknown = headers.get(name);
    return (typeof value === "string" && value.trim()) || undefined;
  };
  const age = Number(/^\d{1,9}$/.exec(get("age") ?? "")?.[0] ?? 0);
  const time = serverTime(get("date") ?? "", age, now ?? Date.now());
  return { status, get, body, cached: age > 0, time, warn };
}

/**
 * Times that a server names are on its own clock, which its Date header tells to the second (when the response was
 * made; a cache adds its Age). Within that second, ours is believed.
 */
function serverTime(date: string, age: number, local: number): number {
  const made = readDate(date) + age * 1000;
  return Number.isNaN(made) ? local : Math.min(Math.max(local, made), made + 1000);
}

/** The standard before the vendors, where it tells how things stand and not only what the rules are. */
function hearDialects(reading: Reading): Heard | undefined {
  // It cost nothing, and tells how things stood for whoever made the request that filled the cache.
  if (reading.cached) return undefined;
  const standard = ietf(reading);
  if (standard?.remaining !== undefined || standard?.pauseFor !== undefined) return standard;
  for (const dialect of vendors) {
    const heard = dialect(reading);
    if (heard !== undefined) return { ...heard, policies: standard?.policies ?? heard.policies };
  }
  return standard;
}

function combine(reading: Reading, heard: Heard | undefined, own: OwnFeedback | undefined): Feedback | undefined {
  const { status } = reading;
  const retryAfter = readRetryAfter(reading);
  const retry = readShouldRetry(reading);
  const everyone = heard?.alone !== true;
  // Zero does not tell when there is room again; the window may.
  const asked = everyone && REFUSALS.includes(status) && retryAfter !== 0 ? retryAfter : undefined;
  const quota = everyone ? heard?.pauseFor : undefined;
  // In order of precedence.
  const claims: readonly (readonly [pause: number | undefined, source: string])[] = [
    [own?.pauseFor, "feedback"],
    [asked, "Retry-After"],
    [own && spentUntil(reading, own), "feedback"],
    [quota, heard?.source ?? ""],
  ];
  const [pauseFor, claimant] = claims.find(([pause]) => pause !== undefined) ?? [];
  const hinted = asked !== undefined || status === 429 || (status === 403 && quota !== undefined);
  const refused = (everyone && (heard?.refused ?? hinted)) || (status >= 400 && (own?.pauseFor ?? 0) > 0);
  const said = withoutGaps({
    pauseFor,
    remaining: own?.remaining ?? heard?.remaining,
    resetAfter: own?.resetAfter ?? heard?.resetAfter,
    policies: heard?.policies,
    cost: own?.cost,
    refused: refused || undefined,
    retryAfter,
    retry,
  });
  if (Object.keys(said).length === 0) return undefined;
  const others = retryAfter !== undefined ? "Retry-After" : own !== undefined ? "feedback" : `status ${status}`;
  return { ...said, source: claimant ?? heard?.source ?? others };
}

/** A window may be longer than any pause. */
function spentUntil(reading: Reading, { remaining, resetAfter }: OwnFeedback): number | undefined {
  if (remaining !== 0 || resetAfter === undefined) return undefined;
  return bounded(reading, "feedback: the pause until resetAfter", resetAfter, MAX_PAUSE_MS);
}

function withoutGaps<T extends object>(value: T): Partial<T> {
  for (const key of Object.keys(value)) if (Reflect.get(value, key) === undefined) Reflect.deleteProperty(value, key);
  return value;
}
