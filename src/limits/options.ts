import type { FeedbackReader } from "../send/feedback/types.js";
import type { Duration } from "./duration.js";
import type { ParsedQuota, Quota } from "./quota.js";
import type { ParsedRate, Rate, Rule } from "./rate.js";
import type { ParsedClassic } from "./rules.js";
import type { Redeliver, RedeliverOptions, Retry, RetryOptions } from "./retry.js";

/** What to do with a call that finds its bucket full: refuse it, or drop the oldest waiting call to make room. */
export type Overflow = "reject" | "drop-oldest";

/** The request that a `key` function looks at. */
export interface LimitRequest {
  readonly url: URL;
  readonly method: string;
  readonly headers: Headers;
}

/** What a `headers` function may return: anything that `new Headers()` takes. */
export type HeadersSource = Headers | Record<string, string> | [string, string][];

/** The part of a limit that lives in Redis: it holds for every process, and can be changed while they run. */
export interface PolicyOptions {
  /**
   * The leak rate: so many starts in a period, shared by all processes. `"10/s"`, `"600/m"`, `"5/10s"`, or
   * `{ limit: 5, per: "10s" }`. Starts are spread evenly over the period. With `counts: "cost"`, so much cost in a period.
   *
   * @throws {InvalidLimitError} unless it is 1 to 1,000,000 in 1 ms to 366 days, and at most 1,000,000 a second.
   */
  readonly rate: Rate;
  /**
   * How many calls may start at once after the bucket stood idle; the rate holds again behind them.
   * A positive integer, at most 1,000,000.
   *
   * @default 1
   */
  readonly burst?: number;
  /**
   * Further windows that must all hold, in the form of `rate`: `["20/m", "200/h", "800/d"]`. Each is strict: never
   * more starts than that in any window of that length; with `{ limit: 90_000, per: "1m", counts: "cost" }`, never more
   * cost. A call that weighs more than all of a window waits until it is empty. And any of the classic algorithms:
   * `{ algorithm: "fixed-window", limit: 5000, per: "1h" }`.
   *
   * @default []
   */
  readonly rules?: readonly Rule[];
  /**
   * How many accepted calls may wait for their first attempt. A positive integer. One more is handled by `overflow`.
   *
   * @default 1000
   */
  readonly capacity?: number;
  /**
   * What happens to a call that finds the bucket full: `"reject"` fails it with `ERR_QUEUE_FULL`; `"drop-oldest"`
   * accepts it and fails the call that waited longest with `ERR_QUEUE_FULL`: one of the lowest priority, and none of a
   * higher priority than the call that comes. Where there is no such call, that one is refused.
   *
   * @default "reject"
   */
  readonly overflow?: Overflow;
  /**
   * How many calls may be in flight at once, counted over all processes. A positive integer, or `Infinity`. A response counts
   * until its body is read or cancelled; a durable call from its first attempt to its last, backoff included.
   *
   * @default Infinity
   */
  readonly concurrency?: number;
  /**
   * How late a start may be. A slot that is missed by more is given up and another one reserved; starts are spaced by
   * (period + lateness) / limit, so that no window of the period ever holds more starts than the rate allows. `0` asks
   * for the exact average rate instead, without that guarantee. A duration up to 60 s, or 0.
   *
   * @default "10ms"
   */
  readonly lateness?: Duration;
}

/**
 * The options of one limit, as {@link defineLimits} takes them.
 *
 * A wrong or unknown option throws `InvalidLimitError` (`ERR_INVALID_LIMIT`), which names the option, what was
 * expected and what was got.
 */
export interface LimitOptions extends PolicyOptions {
  /**
   * How long a call may wait for its slot before it fails with `ERR_WAIT_EXCEEDED`. A duration up to 366 days.
   *
   * @default "5m" for `fetch` and `run`, unbounded for `enqueue`
   */
  readonly maxWait?: Duration;
  /**
   * How long one attempt of a durable call (`enqueue`) may take, or each request of it where redirects are followed. A
   * duration up to 24 days. `fetch` and `run` are bounded by the signal that the caller passes.
   *
   * @default "30s"
   */
  readonly timeout?: Duration;
  /**
   * When a durable call (`enqueue`) is sent again; `false` for never.
   *
   * @default 3 attempts of an idempotent method, on network errors and statuses 408, 429, 500, 502, 503 and 504
   */
  readonly retry?: false | RetryOptions;
  /**
   * Sends a durable call whose attempts have all failed again later, from the end of the queue, with all its attempts:
   * for hooks, whose receivers may be away for hours. It then is sent again whatever its method. `false` for never.
   *
   * @default false
   */
  readonly redeliver?: false | RedeliverOptions;
  /**
   * Gives durable calls of other than idempotent methods an `Idempotency-Key`, the id of the call: the same for all its
   * attempts, so that they may be repeated. For servers that know it (Stripe, and draft-ietf-httpapi-idempotency-key).
   *
   * @default false
   */
  readonly idempotency?: boolean;
  /**
   * What a call weighs, where `rate` or `rules` count cost: an integer from 1 to 1,000,000, or a function of the request,
   * whose `body` is there if it is text. `feedback` may correct it when the response has come.
   *
   * @default 1
   */
  readonly cost?: number | ((request: LimitRequest & { readonly body: string | undefined }) => number);
  /**
   * Gives each value that it returns a bucket of its own: one per tenant, per API key, and so on. It must return a
   * non-empty string, else the call fails with `ERR_INVALID_CALL`. The value becomes part of a key in Redis: return
   * an id or a hash, not a secret.
   *
   * @default one bucket for all requests (of one host, where the limit has a wildcard)
   */
  readonly key?: (request: LimitRequest) => string;
  /**
   * A quota for each producer of a shared queue: who brings in more is refused with `ERR_QUOTA_EXCEEDED`. One of the classic
   * algorithms: `{ algorithm: "token-bucket", max: 100, refillTime: "1m", key: ({ headers }) => headers.get("x-tenant") ?? "none" }`.
   *
   * @default none
   */
  readonly admit?: Quota;
  /**
   * Reads from a response what spillway does not: `(response) => ({ pauseFor, remaining, resetAfter, cost })`, in ms.
   * What it leaves out is read as without it. `response` has `status`, `headers.get(name)` and, of a durable call, the text
   * of the `body` (up to 1 MiB). For `fetch` it is called when the headers have come and, with the body, when that has
   * ended; then only `cost` is heard. With a 4xx, a `pauseFor` tells of a refusal; for a durable call to go again then,
   * `retry.statuses` has to name it, unless it is 403, 420 or 429. What it throws becomes a `warning` event.
   *
   * @default Retry-After, the RateLimit fields, and the headers of some vendors (see the README)
   */
  readonly feedback?: FeedbackReader;
  /**
   * Lets the windows that the server names (`RateLimit-Policy`, or a vendor's) hold beside `rules`. They can tighten
   * the limit, never loosen it.
   *
   * @default false
   */
  readonly learn?: boolean;
  /**
   * Halves the rate when the server refuses a call, and takes back what was lost by equal steps: the whole rate within
   * a minute, or 20 calls where these take longer (AIMD).
   *
   * @default false
   */
  readonly adaptive?: boolean;
  /**
   * Headers to add to a durable call. The worker calls it before each request, so that credentials never enter Redis and
   * are fresh when they are sent: once more where that has waited for its slot for over a second since. It may take as long
   * as the `timeout`; when it fails, so does the attempt. `id` is the one that `enqueue` was given, else one made for the
   * call (what stands behind the last `~` in that of its ticket): the same for all its attempts. They go to the origin of
   * the call only, not where a redirect leads.
   *
   * @default none
   */
  readonly headers?: (request: LimitRequest & { readonly id: string }) => HeadersSource | Promise<HeadersSource>;
  /**
   * How long the result of a durable call can be read. A duration up to 366 days.
   *
   * @default "1h"
   */
  readonly keepResults?: Duration;
  /**
   * The largest request body of a durable call, in bytes; a larger one fails with `ERR_BODY_TOO_LARGE`. An integer
   * from 1 to 268,435,456 (256 MiB).
   *
   * @default 1_048_576 (1 MiB)
   */
  readonly maxRequestBytes?: number;
  /**
   * The largest response body that is kept of a durable call, in bytes, as it came and decoded; a larger one is dropped and
   * marked as such.
   * An integer from 1 to 268,435,456 (256 MiB).
   *
   * @default 10_485_760 (10 MiB)
   */
  readonly maxResponseBytes?: number;
}

/** {@link PolicyOptions} after validation: frozen, durations in ms, defaults filled in. */
export interface Policy {
  readonly rate: ParsedRate;
  readonly burst: number;
  readonly rules: readonly (ParsedRate | ParsedClassic)[];
  readonly capacity: number;
  readonly overflow: Overflow;
  /** Undefined: unlimited. */
  readonly concurrency: number | undefined;
  readonly latenessMs: number;
}

/** A limit after validation: frozen, durations in ms, defaults filled in. */
export interface Limit extends Policy {
  /** The pattern that it was declared under, in normal form: lower case, punycode, no trailing slash. */
  readonly name: string;
  /** Undefined: not declared; permits then wait {@link PERMIT_MAX_WAIT_MS} at most, durable calls without bound. */
  readonly maxWaitMs: number | undefined;
  readonly timeoutMs: number;
  readonly retry: Retry;
  /** Undefined: never. */
  readonly redeliver: Redeliver | undefined;
  readonly idempotency: boolean;
  readonly cost: LimitOptions["cost"];
  readonly admit: ParsedQuota | undefined;
  readonly key: LimitOptions["key"];
  readonly headers: LimitOptions["headers"];
  readonly feedback: LimitOptions["feedback"];
  readonly learn: boolean;
  readonly adaptive: boolean;
  readonly keepResultsMs: number;
  readonly maxRequestBytes: number;
  readonly maxResponseBytes: number;
}

/** How long `fetch` and `run` wait for a slot when the limit does not declare `maxWait`. */
export const PERMIT_MAX_WAIT_MS = 300_000;
