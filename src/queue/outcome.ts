import {
  BlockedError,
  CancelledError,
  InvalidCallError,
  MaybeSentError,
  QueueFullError,
  SpillwayError,
  UnknownHostError,
  UpstreamError,
  WaitExceededError,
} from "../errors.js";

/** How a durable call ended, as it is kept in Redis; the body is kept beside it, as it came. */
export type Outcome = Answer | Failure;

export interface Answer {
  readonly ok: true;
  readonly status: number;
  readonly headers: readonly (readonly [string, string])[];
  readonly attempts: number;
  /** From admission to the start of the first attempt, in ms. */
  readonly waited: number;
  /** The body was larger than `maxResponseBytes` and was not kept. */
  readonly bodyDropped: boolean;
}

export interface Failure {
  readonly ok: false;
  readonly code: SpillwayError["code"];
  readonly message: string;
  readonly limit: string;
  readonly status?: number;
  readonly attempts?: number;
  /** Message of the network error, where the last attempt had no response. */
  readonly cause?: string;
  readonly capacity?: number;
  readonly depth?: number;
  readonly retryAfter?: number;
  readonly maxWait?: number;
  /** Where a redirect led that no limit covers. */
  readonly host?: string;
}

/** The response to a durable call. */
export class CallResult {
  readonly id: string;
  readonly status: number;
  readonly headers: Headers;
  /**
   * Empty when it was larger than `maxResponseBytes`; then `bodyDropped` is true. What the server has compressed (gzip,
   * deflate, br) is decoded, and has neither `Content-Encoding` nor `Content-Length` any more.
   */
  readonly body: Buffer;
  readonly bodyDropped: boolean;
  /** Attempts that were made, the answered one included. */
  readonly attempts: number;
  /** Milliseconds from admission to the start of the first attempt. */
  readonly waited: number;

  constructor(id: string, answer: Answer, body: Buffer) {
    this.id = id;
    this.status = answer.status;
    this.headers = new Headers(answer.headers.map(([name, value]): [string, string] => [name, value]));
    this.body = body;
    this.bodyDropped = answer.bodyDropped;
    this.attempts = answer.attempts;
    this.waited = answer.waited;
  }

  /** True for a status from 200 to 299. */
  get ok(): boolean {
    return this.status >= 200 && this.status < 300;
  }

  /** The body as UTF-8 text. */
  text(): string {
    return this.body.toString("utf8");
  }

  /** The body parsed as JSON. */
  json(): unknown {
    return JSON.parse(this.text());
  }
}

function parseOutcome(stored: string): Outcome {
  const outcome: unknown = JSON.parse(stored);
  if (typeof outcome !== "object" || outcome === null || !("ok" in outcome)) throw new TypeError("Expected an outcome");
  // Written by this package only, as JSON of exactly this type.
  return outcome as Outcome;
}

/** The result of a call that was answered; throws the error of one that was not. */
export function settle(id: string, stored: string, body: Buffer): CallResult {
  const outcome = parseOutcome(stored);
  if (outcome.ok) return new CallResult(id, outcome, body);
  throw toError(id, outcome);
}

function toError(id: string, failure: Failure): SpillwayError {
  const { limit, message, status, cause, attempts = 0, capacity = 0, depth = 0, retryAfter = 0, maxWait = 0 } = failure;
  switch (failure.code) {
    case "ERR_QUEUE_FULL":
      return new QueueFullError({ limit, capacity, depth, retryAfter, dropped: true });
    case "ERR_WAIT_EXCEEDED":
      return new WaitExceededError({ limit, maxWait });
    case "ERR_MAYBE_SENT":
      return new MaybeSentError(id);
    case "ERR_CANCELLED":
      return new CancelledError(message);
    case "ERR_BLOCKED":
      return new BlockedError({ limit, reason: message, retryAfter });
    case "ERR_UNKNOWN_HOST":
      return new UnknownHostError(failure.host ?? "");
    case "ERR_INVALID_CALL":
      return new InvalidCallError(message);
    default:
      return new UpstreamError({ message, status, attempts, ...(cause !== undefined && { cause: new Error(cause) }) });
  }
}

/** What is stored for calls that leave the queue unsent. */
export const outcomes = {
  dropped: (limit: string, capacity: number): string =>
    encode({ code: "ERR_QUEUE_FULL", message: "dropped as the oldest", limit, capacity, depth: capacity }),
  expired: (limit: string, maxWait: number): string =>
    encode({ code: "ERR_WAIT_EXCEEDED", message: "waited too long", limit, maxWait }),
  cancelled: (limit: string, message: string): string => encode({ code: "ERR_CANCELLED", message, limit }),
};

function encode(details: Omit<Failure, "ok">): string {
  return JSON.stringify({ ok: false, ...details } satisfies Failure);
}
