import { InvalidCallError } from "../errors.js";
import { checkBoolean, checkCallOptions } from "../limits/check.js";
import { type Duration, parseDuration } from "../limits/duration.js";
import { checkRedis, type RedisOption } from "../redis/connect.js";
import { list, number, text } from "../redis/reply.js";
import { Blocks, keyBegin } from "./blocks.js";
import { checkAt, checkCost, checkKey, checkStrict } from "./check.js";
import { LimiterConnection } from "./connection.js";
import type {
  AtOptions,
  Limiter,
  LimiterBlock,
  LimiterOptions,
  LimiterResult,
  StrictTakeOptions,
  TakeOptions,
  TokenBucketOptions,
} from "./options.js";
import { type ClassicRule, encodeRule, normalizeRule } from "./rule.js";

const AT_OPTIONS = ["at"];
/** Whoever looks may look with the options with which he takes. */
const TAKE_OPTIONS = ["cost", "strict", ...AT_OPTIONS];

/**
 * Makes a limiter of one of the classic algorithms.
 *
 * @param redis a URL, ioredis options, or an ioredis client (a pattern: it is duplicated, not used, and not closed);
 *   undefined for `REDIS_URL`, or else, but not in production, an embedded server.
 * @param options the algorithm and its numbers. They are part of a key's identity: with other numbers it begins anew.
 * @throws {InvalidLimitError} when an option is unknown or wrong.
 */
export function createLimiter(redis: RedisOption | undefined, options: TokenBucketOptions): Limiter<StrictTakeOptions>;
export function createLimiter(redis: RedisOption | undefined, options: LimiterOptions): Limiter;
export function createLimiter(redis: RedisOption | undefined, options: LimiterOptions): Limiter<StrictTakeOptions> {
  const rule = readRule(options, "limiter");
  checkRedis(redis, options.prefix);
  return new RedisLimiter(redis, rule, options.prefix ?? "spillway");
}

interface LimiterRule {
  /** As the scripts read it. */
  readonly encoded: string;
  /** Whether a refused call counts. */
  readonly countRefused: boolean;
  /** Whether calls may be `strict`. */
  readonly steps: boolean;
}

function readRule(options: LimiterOptions, path: string): LimiterRule {
  const steps = options?.algorithm === "token-bucket";
  const word = steps ? "drain" : "countRefused";
  const encoded = encodeRule(normalizeRule(options satisfies ClassicRule, path, ["prefix", word]));
  const counts = "drain" in options ? options.drain : "countRefused" in options ? options.countRefused : undefined;
  return { encoded, countRefused: checkBoolean(counts ?? false, `${path}.${word}`), steps };
}

class RedisLimiter implements Limiter<StrictTakeOptions> {
  readonly #connection: LimiterConnection;
  readonly #rule: LimiterRule;
  readonly #blocks: Blocks;
  readonly #prefix: string;

  constructor(redis: RedisOption | undefined, rule: LimiterRule, prefix: string) {
    this.#connection = new LimiterConnection(redis);
    this.#rule = rule;
    this.#prefix = prefix;
    this.#blocks = new Blocks(this.#connection, prefix);
  }

  async take(key: string, options: StrictTakeOptions = {}): Promise<LimiterResult> {
    checkCallOptions(options, TAKE_OPTIONS);
    const strict = checkStrict(options.strict);
    if (strict && !this.#rule.steps) throw new InvalidCallError("Expected `strict` only with a token bucket");
    return this.#ask("take", key, options, [this.#rule.countRefused ? "1" : "", strict ? "1" : ""]);
  }

  async peek(key: string, options: TakeOptions = {}): Promise<LimiterResult> {
    checkCallOptions(options, TAKE_OPTIONS);
    return this.#ask("peek", key, options, []);
  }

  async #ask(operation: string, key: string, options: TakeOptions, flags: string[]): Promise<LimiterResult> {
    const blockKey = this.#blocks.keyOf(checkKey(key));
    const args = [operation, this.#rule.encoded, checkAt(options.at), checkCost(options.cost), ...flags];
    return readResult(await this.#connection.script("limiter", blockKey, args));
  }

  async reset(key: string): Promise<void> {
    const name = keyBegin(this.#prefix, checkKey(key)) + this.#rule.encoded;
    await this.#connection.command((connection) => connection.del(name));
  }

  async migrate(key: string, from: LimiterOptions, options: AtOptions = {}): Promise<number> {
    checkCallOptions(options, AT_OPTIONS);
    const { encoded } = readRule(from, "from");
    checkRedis(undefined, from.prefix);
    const name = checkKey(key);
    const begin = keyBegin(from.prefix ?? this.#prefix, name);
    const args = ["migrate", this.#rule.encoded, checkAt(options.at), encoded, begin];
    const [carried] = list(await this.#connection.script("limiter", this.#blocks.keyOf(name), args));
    return number(carried);
  }

  async block(key: string, duration: Duration, reason: string, options: AtOptions = {}): Promise<void> {
    checkCallOptions(options, AT_OPTIONS);
    if (typeof reason !== "string") throw new InvalidCallError("Expected `reason` to be a string");
    await this.#blocks.set(checkKey(key), parseDuration(duration, "duration"), reason, checkAt(options.at));
  }

  async unblock(key: string): Promise<boolean> {
    return this.#blocks.end(checkKey(key));
  }

  async blocks(): Promise<LimiterBlock[]> {
    return this.#blocks.list();
  }

  close(): Promise<void> {
    return this.#connection.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

/** A wait that is rounded down would be too short. */
const milliseconds = (micros: unknown): number => Math.ceil(number(micros) / 1000);

function readResult(reply: unknown): LimiterResult {
  const [allowed, remaining, wait, reset, reason] = list(reply);
  return {
    allowed: allowed === 1,
    remaining: number(remaining),
    retryAfter: wait === "" ? Infinity : milliseconds(wait),
    resetAfter: milliseconds(reset),
    blocked: typeof reason === "string" ? text(reason) : undefined,
  };
}
