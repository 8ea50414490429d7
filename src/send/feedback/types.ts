/** The part of a response that says how the server wants to be called. A fetch `Response` is one. */
export interface FeedbackResponse {
  readonly status: number;
  /** Header values by name, in any case; the values of a repeated header are joined with a comma, as `Headers` does. */
  readonly headers: { get(name: string): string | null | undefined };
  /** The text of the body (its beginning will do), where it is at hand. Of a durable call it is, up to 1 MiB. */
  readonly body?: string | undefined;
  /**
   * The time of the response, in ms since 1970.
   *
   * @default Date.now()
   */
  readonly now?: number | undefined;
}

/** A quota that the server names: so many units in a period. */
export interface QuotaPolicy {
  readonly name: string;
  readonly limit: number;
  /** The period in ms; undefined where the server does not tell it. */
  readonly perMs: number | undefined;
  /** What is counted: `"requests"`, `"tokens"`, `"points"`, or the server's own word (`"content-bytes"`). */
  readonly unit: string;
}

/** What one response says about the next requests. Durations are in whole ms. */
export interface Feedback {
  /** Start nothing in this bucket for so long: at most {@link MAX_PAUSE_MS}. */
  readonly pauseFor?: number | undefined;
  /** Requests left in the server's window. A promise of nothing: other clients may use it up. */
  readonly remaining?: number | undefined;
  /** How long until that window is fresh. */
  readonly resetAfter?: number | undefined;
  /** The quotas that the server names. */
  readonly policies?: readonly QuotaPolicy[] | undefined;
  /** What the call has cost. Only an own reader knows that. */
  readonly cost?: number | undefined;
  /** The server turned the call away because there were too many, and not because of what it asks for. */
  readonly refused?: boolean | undefined;
  /** Do not send this very call again for so long; other calls need not wait. At most {@link MAX_PAUSE_MS}. */
  readonly retryAfter?: number | undefined;
  /** Whether the server wants this call to be sent again. */
  readonly retry?: boolean | undefined;
  /** The header or vendor that it was read from, for events and logs. */
  readonly source: string;
}

/**
 * A reader of one's own, per limit. What it returns is laid over what spillway reads by itself: a field that it leaves
 * out stays as it is, and `pauseFor: 0` says that the response asks for no pause. `remaining: 0` with a `resetAfter`
 * is a pause too. With a status from 400 on, a `pauseFor` says that the server turned the call away because there were too
 * many: a 403, and any 4xx that `retry.statuses` names, is then no attempt, as a 429 is none.
 */
export type FeedbackReader = (response: FeedbackResponse) => OwnFeedback | undefined;

/** What an own reader may say. */
export type OwnFeedback = Pick<Feedback, "pauseFor" | "remaining" | "resetAfter" | "cost">;

/** What a dialect has understood: {@link Feedback} before Retry-After and the own reader have been heard. */
export interface Heard extends Feedback {
  /** It concerns this call (one object, one shared resource), not the others of its bucket. */
  readonly alone?: boolean | undefined;
}

/** Understands the headers of one standard or vendor; undefined where there are none. */
export type Dialect = (reading: Reading) => Heard | undefined;

/** A response in the one form that all dialects read. */
export interface Reading {
  readonly status: number;
  /** A header without white space around it; undefined where it is missing or empty. */
  get(name: string): string | undefined;
  readonly body: string;
  /** It comes from a cache. */
  readonly cached: boolean;
  /** The time at the server, in ms since 1970. */
  readonly time: number;
  /** Tells of a value that was understood and cannot be meant. */
  warn(message: string): void;
}
