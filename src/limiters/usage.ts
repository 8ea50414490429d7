import { InvalidLimitError } from "../errors.js";
import { keyPart } from "../limits/bucket.js";
import { checkCallOptions, checkKeys, isName } from "../limits/check.js";
import { ceilMs, type Duration, formatDuration, parseDuration, UNIT_MS } from "../limits/duration.js";
import { checkRedis, type RedisOption } from "../redis/connect.js";
import { number } from "../redis/reply.js";
import { checkAt, checkCost, checkKey } from "./check.js";
import { LimiterConnection } from "./connection.js";
import type { AtOptions } from "./options.js";

export interface UsageOptions {
  /**
   * What is counted: usages of the same subject and prefix with another action are apart.
   *
   * @default "default"
   */
  readonly action?: string;
  /** How far back one can look: a duration of 1 to 10,000 intervals. What is older is forgotten. */
  readonly span: Duration;
  /**
   * How finely it is counted: a duration.
   *
   * @default "1s"
   */
  readonly interval?: Duration;
  /**
   * Of all its keys in Redis.
   *
   * @default "spillway"
   */
  readonly prefix?: string;
}

/**
 * Counts what subjects do, in constant space for each: at most span / interval small fields of a hash, of about 20 bytes each
 * where there are no more than 512, and 80 where there are more.
 */
export interface Usage extends AsyncDisposable {
  /** Adds `n` (default 1, an integer up to 1,000,000,000) to the running interval. */
  add(subject: string, n?: number, options?: AtOptions): Promise<void>;
  /**
   * How many in the last so many seconds, to the interval: the running one, and as many before it as it takes to have
   * `seconds` / interval of them. At most the span. O(intervals).
   */
  count(subject: string, seconds: number, options?: AtOptions): Promise<number>;
  /** Both in one step: adds first, and counts that, too. */
  addCount(subject: string, seconds: number, options?: AtOptions & { readonly n?: number }): Promise<number>;
  /** Forgets a subject. */
  reset(subject: string): Promise<void>;
  /** Waits for what is under way, and closes the connection unless others use it. */
  close(): Promise<void>;
}

const OPTIONS = ["action", "span", "interval", "prefix"];
const MOST_INTERVALS = 10_000;

/**
 * Counts how often subjects (users, hosts, keys) did something lately, in a ring of intervals with absolute numbers.
 *
 * @param redis a URL, ioredis options, or an ioredis client (a pattern: it is duplicated, not used, and not closed);
 *   undefined for `REDIS_URL`, or else, but not in production, an embedded server.
 * @throws {InvalidLimitError} when an option is unknown or wrong.
 */
export function createUsage(redis: RedisOption | undefined, options: UsageOptions): Usage {
  checkKeys(options, "usage", OPTIONS);
  const { action = "default", prefix = "spillway" } = options;
  checkRedis(redis, options.prefix);
  if (!isName(action)) throw new InvalidLimitError("usage.action", "a name", action);
  const intervalMs = parseDuration(options.interval ?? UNIT_MS.s, "usage.interval");
  const spanMs = parseDuration(options.span, "usage.span");
  const slots = Math.ceil(spanMs / intervalMs);
  if (slots > MOST_INTERVALS) {
    const expected = `at most ${MOST_INTERVALS} intervals, which are ${formatDuration(MOST_INTERVALS * intervalMs)}`;
    throw new InvalidLimitError("usage.span", expected, options.span);
  }
  return new RedisUsage(redis, { prefix, action, intervalMs, slots });
}

interface Ring {
  readonly prefix: string;
  readonly action: string;
  readonly intervalMs: number;
  readonly slots: number;
}

class RedisUsage implements Usage {
  readonly #connection: LimiterConnection;
  readonly #ring: Ring;

  constructor(redis: RedisOption | undefined, ring: Ring) {
    this.#connection = new LimiterConnection(redis);
    this.#ring = ring;
  }

  /** Rings of another shape count apart. */
  #keyOf(subject: string): string {
    const { prefix, action, intervalMs, slots } = this.#ring;
    return `${prefix}:usage:{${keyPart(checkKey(subject))}}:${keyPart(action)}:${intervalMs}:${slots}`;
  }

  async #run(subject: string, n: number, seconds: number, { at }: AtOptions): Promise<number> {
    const { intervalMs, slots } = this.#ring;
    const intervals = Math.min(slots, Math.ceil(ceilMs(seconds * 1000) / intervalMs));
    const args = [checkAt(at), intervalMs * 1000, slots, n, intervals];
    return number(await this.#connection.script("tally", this.#keyOf(subject), args));
  }

  async add(subject: string, n?: number, options: AtOptions = {}): Promise<void> {
    checkCallOptions(options, ["at"]);
    await this.#run(subject, checkCost(n, "n"), 0, options);
  }

  async count(subject: string, seconds: number, options: AtOptions = {}): Promise<number> {
    checkCallOptions(options, ["at"]);
    return this.#run(subject, 0, checkSeconds(seconds), options);
  }

  async addCount(subject: string, seconds: number, options: AtOptions & { readonly n?: number } = {}): Promise<number> {
    checkCallOptions(options, ["n", "at"]);
    return this.#run(subject, checkCost(options.n, "n"), checkSeconds(seconds), options);
  }

  async reset(subject: string): Promise<void> {
    await this.#connection.command((connection) => connection.del(this.#keyOf(subject)));
  }

  close(): Promise<void> {
    return this.#connection.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

function checkSeconds(seconds: number): number {
  if (typeof seconds === "number" && seconds > 0 && seconds <= Number.MAX_SAFE_INTEGER) return seconds;
  throw new InvalidLimitError("seconds", "a number of seconds above 0", seconds);
}
