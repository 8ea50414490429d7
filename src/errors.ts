/** Every code a {@link SpillwayError} can carry. */
export type SpillwayErrorCode =
  | "ERR_QUEUE_FULL"
  | "ERR_WAIT_EXCEEDED"
  | "ERR_UNKNOWN_HOST"
  | "ERR_BLOCKED"
  | "ERR_REDIS_UNAVAILABLE"
  | "ERR_MAYBE_SENT"
  | "ERR_BODY_TOO_LARGE"
  | "ERR_UPSTREAM"
  | "ERR_INVALID_LIMIT"
  | "ERR_INVALID_CALL"
  | "ERR_CANCELLED"
  | "ERR_CLOSED"
  | "ERR_QUOTA_EXCEEDED"
  | "ERR_DUPLICATE"
  | "ERR_UNKNOWN_CALL";

/**
 * Base class of every error that spillway throws by itself. Tell them apart by `code`, which is a literal type on
 * each subclass. `name` is the class name, `cause` the underlying error where there is one.
 */
export abstract class SpillwayError extends Error {
  abstract readonly code: SpillwayErrorCode;
  override get name(): string {
    return this.constructor.name;
  }
}

function roomIn(ms: number, what: string): string {
  return Number.isFinite(ms) ? `room in about ${Math.ceil(ms)} ms` : `and there is never room for ${what}`;
}

/** The bucket holds `capacity` calls already (or the call was the oldest and made room: `overflow: "drop-oldest"`). */
export class QueueFullError extends SpillwayError {
  readonly code = "ERR_QUEUE_FULL";
  /** Name of the limit. */
  readonly limit: string;
  /** Its capacity, in calls. */
  readonly capacity: number;
  /** Calls that were waiting when this one was refused. */
  readonly depth: number;
  /**
   * Milliseconds after which the leak will have made room: for one call, or with `mode: "all"` for all of the list.
   * Infinity where the list is longer than `capacity`, 0 for a call that was dropped.
   */
  readonly retryAfter: number;
  constructor(details: { limit: string; capacity: number; depth: number; retryAfter: number; dropped?: boolean }) {
    const places = `${details.depth} of ${details.capacity} places taken`;
    super(
      details.dropped === true
        ? `Dropped as the oldest waiting call of limit "${details.limit}": ${places}`
        : `No room in the queue of limit "${details.limit}": ${places}, ${roomIn(details.retryAfter, "so many at once")}`,
    );
    this.limit = details.limit;
    this.capacity = details.capacity;
    this.depth = details.depth;
    this.retryAfter = details.retryAfter;
  }
}

/** The call waited longer than its `maxWait` and was dropped before it was sent. */
export class WaitExceededError extends SpillwayError {
  readonly code = "ERR_WAIT_EXCEEDED";
  readonly limit: string;
  /** The bound that was exceeded, in ms. */
  readonly maxWait: number;
  constructor(details: { limit: string; maxWait: number; hint?: string }) {
    super(
      `Waited longer than ${details.maxWait} ms for a slot of limit "${details.limit}"` +
        (details.hint === undefined ? "" : `: ${details.hint}`),
    );
    this.limit = details.limit;
    this.maxWait = details.maxWait;
  }
}

/** No limit matches the host of this URL. Add one, or `"*"` to allow any host. */
export class UnknownHostError extends SpillwayError {
  readonly code = "ERR_UNKNOWN_HOST";
  readonly host: string;
  constructor(host: string) {
    super(`No limit matches host "${host}": add it to defineLimits, or "*" to allow any host`);
    this.host = host;
  }
}

/** The producer of the call has used up its quota of the shared queue (`admit`). */
export class QuotaExceededError extends SpillwayError {
  readonly code = "ERR_QUOTA_EXCEEDED";
  readonly limit: string;
  /** Whose quota it is: what the `key` of `admit` returned, or "". */
  readonly key: string;
  /** Milliseconds until the call fits; Infinity when it never does. */
  readonly retryAfter: number;
  constructor(details: { limit: string; key: string; retryAfter: number }) {
    const whose = details.key === "" ? "" : ` of "${details.key}"`;
    super(
      `The quota${whose} in limit "${details.limit}" has no room: ${roomIn(details.retryAfter, "so much at once")}`,
    );
    this.limit = details.limit;
    this.key = details.key;
    this.retryAfter = details.retryAfter;
  }
}

/** A call with the same `dedupe` key waits already, and this one was not to join it. */
export class DuplicateError extends SpillwayError {
  readonly code = "ERR_DUPLICATE";
  readonly limit: string;
  /** Id of the ticket of the call that waits. */
  readonly id: string;
  constructor(details: { limit: string; id: string }) {
    super(`A call with the same dedupe key waits in limit "${details.limit}" already`);
    this.limit = details.limit;
    this.id = details.id;
  }
}

/** The bucket was blocked by `limit().block()`; new calls are refused until it ends. */
export class BlockedError extends SpillwayError {
  readonly code = "ERR_BLOCKED";
  readonly limit: string;
  readonly reason: string;
  /** Milliseconds until the block ends by itself. */
  readonly retryAfter: number;
  constructor(details: { limit: string; reason: string; retryAfter: number }) {
    super(`Limit "${details.limit}" is blocked for ${Math.ceil(details.retryAfter)} ms: ${details.reason}`);
    this.limit = details.limit;
    this.reason = details.reason;
    this.retryAfter = details.retryAfter;
  }
}

/**
 * Redis did not answer in time. A call that failed with this error was not accepted; whether `limit()` or a limiter has done what
 * it was asked for is not known.
 */
export class RedisUnavailableError extends SpillwayError {
  readonly code = "ERR_REDIS_UNAVAILABLE";
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
  }
}

/**
 * The worker that held this call died or lost its lock, so the request may have reached the server. It is not
 * idempotent and has no idempotency key, so it is not sent again.
 */
export class MaybeSentError extends SpillwayError {
  readonly code = "ERR_MAYBE_SENT";
  constructor(id: string) {
    super(`Call ${id} may have been sent by a worker that died; it is not idempotent, so it is not sent again`);
  }
}

/** The body of a durable call is larger than `maxRequestBytes`. */
export class BodyTooLargeError extends SpillwayError {
  readonly code = "ERR_BODY_TOO_LARGE";
  readonly bytes: number;
  readonly maxBytes: number;
  constructor(details: { bytes: number; maxBytes: number }) {
    super(`Expected a request body of at most ${details.maxBytes} bytes, got ${details.bytes}`);
    this.bytes = details.bytes;
    this.maxBytes = details.maxBytes;
  }
}

/** Every attempt failed. Carries the last status, or the network error as `cause`. */
export class UpstreamError extends SpillwayError {
  readonly code = "ERR_UPSTREAM";
  /** Status of the last response; undefined when the last attempt got none. */
  readonly status: number | undefined;
  /** How many attempts were made. */
  readonly attempts: number;
  constructor(details: { message: string; status?: number | undefined; attempts: number; cause?: unknown }) {
    super(details.message, details.cause === undefined ? undefined : { cause: details.cause });
    this.status = details.status;
    this.attempts = details.attempts;
  }
}

/** A limit is declared wrongly. Names the option, what was expected, and what was got. */
export class InvalidLimitError extends SpillwayError {
  readonly code = "ERR_INVALID_LIMIT";
  /** Path of the option, such as `api.github.com.rate`. */
  readonly option: string;
  readonly expected: string;
  readonly value: unknown;
  constructor(option: string, expected: string, value: unknown) {
    super(`Expected \`${option}\` to be ${expected}, got ${describe(value)}`);
    this.option = option;
    this.expected = expected;
    this.value = value;
  }
}

/** The call itself is wrong (a URL that is none, a body that cannot be stored, …); nothing was stored. */
export class InvalidCallError extends SpillwayError {
  readonly code = "ERR_INVALID_CALL";
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
  }
}

/** The call was cancelled while it waited, by `ticket.cancel()` or `limit().clear()`; it was not sent. */
export class CancelledError extends SpillwayError {
  readonly code = "ERR_CANCELLED";
  constructor(message = "The call was cancelled before it was sent") {
    super(message);
  }
}

/** The client or worker was closed while, or before, this call was made. */
export class ClosedError extends SpillwayError {
  readonly code = "ERR_CLOSED";
  constructor(message = "The client is closed") {
    super(message);
  }
}

/** No call with this id waits, runs, or has a result that is still kept. */
export class UnknownCallError extends SpillwayError {
  readonly code = "ERR_UNKNOWN_CALL";
  constructor(id: string) {
    super(`No call ${id}: it never existed, or its result is no longer kept (\`keepResults\`)`);
  }
}

function describe(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value);
  if (typeof value === "function") return "a function";
  if (typeof value === "object" && value !== null) {
    try {
      return JSON.stringify(value);
    } catch {
      return "an object";
    }
  }
  return String(value);
}
