import { InvalidCallError, UnknownHostError } from "../errors.js";
import { termsOf, termsOfRun } from "../intake/terms.js";
import { isRecord } from "../limits/check.js";
import type { BucketRef, Limits } from "../limits/define.js";
import { type Duration, MAX_DURATION_MS, parseDuration } from "../limits/duration.js";
import type { HeadersSource } from "../limits/options.js";
import type { CallTerms, Terms } from "../queue/terms.js";

/** A call that came, or may come, at a certain time; it waits as `fetch` and `run` do. */
export interface Arrival extends CallTerms {
  /**
   * When it came: milliseconds since 1970 or on a clock of its own that begins near 0, a Date, or a time in ISO 8601 (UTC
   * where it names no zone).
   */
  readonly at: number | Date | string;
  /** What was to be fetched. Without `url` and `limit` the only limit is meant. */
  readonly url?: string | URL;
  /** @default "GET" */
  readonly method?: string;
  /** For the `key` and `cost` functions of the limit. */
  readonly headers?: HeadersSource;
  /** For the `cost` function of the limit. */
  readonly body?: string;
  /** In place of `url`: the name of a limit, as for `run`. */
  readonly limit?: string;
  /** With `limit`: which bucket of a limit with `key`, or which host of one with a wildcard. */
  readonly key?: string;
  /** With `limit`: whose quota it counts against, where the limit has an `admit` with `key`. */
  readonly producer?: string;
  /**
   * For how long the call is in flight once it has started, which matters where the limit has a `concurrency`.
   *
   * @default 0
   */
  readonly duration?: Duration;
}

/** An {@link Arrival} after validation; times are in µs. */
export interface Incoming {
  /** From 0. */
  readonly index: number;
  readonly at: number;
  readonly durationMicros: number;
  /** Undefined where no limit covers the host. */
  readonly target: { readonly ref: BucketRef; readonly terms: Terms } | undefined;
}

/** A clock that shows less than this (1973) began at 0. */
const LEAST_EPOCH_MS = 1e11;
/** Where such a clock begins, for rules that go by the hour or day, and for bursts that are saved up since long ago. */
const ORIGIN_MS = Date.UTC(2000, 0);
/** Beyond this (2255), µs are no longer exact. */
const MAX_MS = 9e12;

/** Reads arrivals, which must come in the order of their times. */
export class ArrivalReader {
  readonly #limits: Limits;
  #count = 0;
  #latest = -Infinity;
  /** Added to the times as given, in µs. */
  #offset = 0;

  constructor(limits: Limits) {
    this.#limits = limits;
  }

  /** A time as the scripts have it, on the clock of the arrivals: in ms. */
  given(micros: number): number {
    return (micros - this.#offset) / 1000;
  }

  /** @throws {InvalidCallError} naming its position, from 1. */
  read(arrival: Arrival): Incoming {
    const index = this.#count++;
    try {
      checkShape(arrival);
      const at = this.#time(arrival.at);
      const durationMicros = parseDuration(arrival.duration ?? 0, "duration", { min: 0, max: MAX_DURATION_MS }) * 1000;
      return { index, at, durationMicros, target: this.#target(arrival) };
    } catch (cause) {
      const message = cause instanceof Error ? cause.message : String(cause);
      throw new InvalidCallError(`Arrival ${index + 1}: ${message}`, { cause });
    }
  }

  #time(given: Arrival["at"]): number {
    const ms = milliseconds(given);
    if (this.#latest === -Infinity && ms < LEAST_EPOCH_MS) this.#offset = ORIGIN_MS * 1000;
    const at = Math.round(ms * 1000) + this.#offset;
    if (at < this.#latest) {
      throw new InvalidCallError("Expected arrivals in the order of their times, but this one is older than the last");
    }
    this.#latest = at;
    return at;
  }

  #target(arrival: Arrival): Incoming["target"] {
    try {
      const ref = this.#bucket(arrival);
      return { ref, terms: this.#terms(ref, arrival) };
    } catch (error) {
      if (error instanceof UnknownHostError) return undefined;
      throw error;
    }
  }

  #bucket({ url, method, headers, limit, key }: Arrival): BucketRef {
    if (url !== undefined)
      return this.#limits.match(url, { method: method?.toUpperCase(), headers: new Headers(headers) });
    const [only, ...others] = this.#limits.names;
    const name = limit ?? (others.length === 0 ? only : undefined);
    if (name === undefined) throw new InvalidCallError("Expected a `url` or a `limit`, as there are several limits");
    return this.#limits.resolve(name, key);
  }

  #terms({ limit }: BucketRef, arrival: Arrival): Terms {
    const { url, method = "GET", headers, body, priority, cost, maxWait, producer } = arrival;
    if (url === undefined) return termsOfRun(limit, { priority, cost, maxWait, producer });
    const request = { url: new URL(url), method: method.toUpperCase(), headers: new Headers(headers), body };
    return termsOf(limit, request, { priority, cost, maxWait });
  }
}

const TEXTS = ["method", "body", "limit", "key", "producer"];

/** What is read from a log may be anything. */
function checkShape(arrival: unknown): void {
  if (!isRecord(arrival)) throw new InvalidCallError("Expected an object such as { at, url }");
  for (const name of TEXTS) {
    const value = arrival[name];
    if (value !== undefined && typeof value !== "string") {
      throw new InvalidCallError(`Expected \`${name}\` to be a text, got ${typeof value}`);
    }
  }
}

const ISO = /^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?)(Z|[+-]\d\d:?\d\d)?)?$/i;

/** @throws {InvalidCallError} for what is no time. */
export function milliseconds(given: Arrival["at"]): number {
  const ms = typeof given === "string" ? parseIso(given) : Number(given);
  if (ms >= 0 && ms <= MAX_MS && (typeof given !== "object" || given instanceof Date)) return ms;
  const got = typeof given === "string" ? JSON.stringify(given) : String(given);
  throw new InvalidCallError(`Expected \`at\` to be milliseconds, a Date, or a time in ISO 8601, got ${got}`);
}

function parseIso(text: string): number {
  const [, date, time = "00:00", zone = "Z"] = ISO.exec(text.trim()) ?? [];
  return date === undefined ? Number.NaN : Date.parse(`${date}T${time.replace(",", ".")}${zone.toUpperCase()}`);
}
