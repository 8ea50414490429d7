import type { Duration } from "../limits/duration.js";
import type {
  FixedWindowRule,
  LeakyBucketRule,
  SlidingLogRule,
  SlidingWindowCounterRule,
  SlidingWindowRule,
  TokenBucketRule,
} from "./rule.js";

interface CommonOptions {
  /**
   * Of all its keys in Redis. Limiters with the same prefix and the same rule share what a key has used, and all with the
   * same prefix share the blocks.
   *
   * @default "spillway"
   */
  readonly prefix?: string;
}

interface CountingOptions extends CommonOptions {
  /**
   * Whether a refused call counts like any other, so that who does not stop asking stays refused.
   *
   * @default false
   */
  readonly countRefused?: boolean;
}

/** Options of a limiter with algorithm `token-bucket`. */
export interface TokenBucketOptions extends TokenBucketRule, CommonOptions {
  /**
   * Whether a call for more tokens than there are takes those that are there, although it is refused.
   *
   * @default false
   */
  readonly drain?: boolean;
}

/** Options of a limiter with any other algorithm. */
export type CountingLimiterOptions = CountingOptions &
  (LeakyBucketRule | FixedWindowRule | SlidingLogRule | SlidingWindowCounterRule | SlidingWindowRule);

/** Options of a limiter. */
export type LimiterOptions = TokenBucketOptions | CountingLimiterOptions;

/** When something happens, unless it is now by the clock of Redis. */
export interface AtOptions {
  /**
   * The time of the call, as a Date or in ms since 1970 (to the µs; until 2220): for replaying history, or for a clock of
   * the caller's own. Use it always or never for a key. Calls should come in the order of their times: one that is older
   * than the newest of its key is judged as if it came with that one (by `sliding-log`: at its own time; by `sliding-window`:
   * at its own, or else at the begin of the newest window).
   *
   * @default the clock of Redis
   */
  readonly at?: number | Date;
}

/** Options of one call. */
export interface TakeOptions extends AtOptions {
  /**
   * What the call weighs: an integer from 0 to 1,000,000,000. What weighs more than the whole limit never fits.
   *
   * @default 1
   */
  readonly cost?: number;
}

/** Options of one call to a token bucket. */
export interface StrictTakeOptions extends TakeOptions {
  /**
   * Whether a call that is refused, or takes the last token, puts off the next refill by a whole `refillTime`: only who
   * stops asking for so long gets in again.
   *
   * @default false
   */
  readonly strict?: boolean;
}

/** What a limiter says about a call. */
export interface LimiterResult {
  /** Whether it may go ahead. */
  readonly allowed: boolean;
  /** The largest cost that still fits now. */
  readonly remaining: number;
  /** Milliseconds until the same call fits if nothing else comes; 0 when it is allowed, `Infinity` when it never can be. */
  readonly retryAfter: number;
  /** Milliseconds until the key is as good as one that was never used. */
  readonly resetAfter: number;
  /** The reason of the manual block that refuses the call; undefined when none does. */
  readonly blocked: string | undefined;
}

/** A manual block. */
export interface LimiterBlock {
  readonly key: string;
  readonly reason: string;
  readonly until: Date;
}

/**
 * A limiter: one rule for any number of keys, shared by all processes. What a method does to a key is one step in Redis; the
 * list of the blocks is brought up to date after it.
 */
export interface Limiter<Take extends TakeOptions = TakeOptions> extends AsyncDisposable {
  /**
   * Counts a call if it fits. Rejects with {@link RedisUnavailableError} when Redis does not answer within a second
   * (it may have counted), and with {@link InvalidCallError} for a wrong key or option, as do all methods.
   */
  take(key: string, options?: Take): Promise<LimiterResult>;
  /** What {@link take} would say, without counting. */
  peek(key: string, options?: TakeOptions): Promise<LimiterResult>;
  /** Forgets what the key has used. A block stays. */
  reset(key: string): Promise<void>;
  /**
   * Carries over what the key has used under another rule, as if it were used now, and forgets it there: for changed
   * parameters, which otherwise begin anew. Never gives back what is used. Of several rules of a log, it is what the window
   * holds that holds most. Without a `prefix`, `from` has that of this limiter. Resolves with how much it carried over.
   * Rejects with {@link InvalidLimitError} for a wrong rule.
   */
  migrate(key: string, from: LimiterOptions, options?: AtOptions): Promise<number>;
  /**
   * Refuses all calls of a key, by this and every other limiter with the same prefix, for a duration of up to 366 days. A
   * blocked call counts nowhere. Another block takes its place. Rejects with {@link InvalidLimitError} for a wrong duration.
   */
  block(key: string, duration: Duration, reason: string, options?: AtOptions): Promise<void>;
  /** Ends a block. Resolves false when there was none. */
  unblock(key: string): Promise<boolean>;
  /** The blocks of this prefix that have not ended, the one that ends first at the head. */
  blocks(): Promise<LimiterBlock[]>;
  /** Waits for the calls under way, and closes the connection unless other limiters use it. */
  close(): Promise<void>;
}
