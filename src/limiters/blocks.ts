import { keyPart } from "../limits/bucket.js";
import type { Connection } from "../redis/connect.js";
import { number } from "../redis/reply.js";
import type { LimiterConnection } from "./connection.js";
import type { LimiterBlock } from "./options.js";

/** A block that is over is not struck off the list at once: it might be set anew at this moment. */
const GRACE_MS = 60_000;

/** What all begins with that is stored for a key; behind it, the text of a rule, or `block`. */
export const keyBegin = (prefix: string, key: string): string => `${prefix}:limiter:{${keyPart(key)}}:`;

/**
 * Manual blocks: a key beside those of the rules, read with each call, and a list of the blocked keys. The list is only
 * for looking at; in a cluster it lies on another node.
 */
export class Blocks {
  readonly #connection: LimiterConnection;
  readonly #prefix: string;

  constructor(connection: LimiterConnection, prefix: string) {
    this.#connection = connection;
    this.#prefix = prefix;
  }

  /** Where the block of a key is stored; the state of each rule lies beside it. */
  keyOf(key: string): string {
    return `${keyBegin(this.#prefix, key)}block`;
  }

  get #listKey(): string {
    return `${this.#prefix}:limiter:blocks`;
  }

  async set(key: string, durationMs: number, reason: string, at: number | ""): Promise<void> {
    const args = [at, durationMs * 1000, reason];
    const goes = number(await this.#connection.script("limiterBlock", this.keyOf(key), args));
    await this.#connection.command(async (connection) => {
      await this.#strike(connection);
      await connection.zadd(this.#listKey, goes, key);
    });
  }

  /** Also when nobody looks at the list, it does not grow for ever. */
  async #strike(connection: Connection): Promise<void> {
    const [seconds] = await connection.time();
    await connection.zremrangebyscore(this.#listKey, 0, Number(seconds) * 1000 - GRACE_MS);
  }

  async end(key: string): Promise<boolean> {
    const ended = await this.#connection.command((connection) => connection.del(this.keyOf(key)));
    await this.#connection.command((connection) => connection.zrem(this.#listKey, key));
    return ended === 1;
  }

  async list(): Promise<LimiterBlock[]> {
    const keys = await this.#connection.command(async (connection) => {
      await this.#strike(connection);
      return connection.zrange(this.#listKey, 0, "-1");
    });
    const blocks = await this.#connection.command((connection) =>
      Promise.all(keys.map(async (key) => readBlock(key, await connection.get(this.keyOf(key))))),
    );
    return blocks.filter((block) => block !== undefined).toSorted((a, b) => a.until.getTime() - b.until.getTime());
  }
}

function readBlock(key: string, stored: string | null): LimiterBlock | undefined {
  const [, until, reason] = /^(\d+) (.*)$/s.exec(stored ?? "") ?? [];
  if (until === undefined || reason === undefined) return undefined;
  return { key, reason, until: new Date(Math.ceil(Number(until) / 1000)) };
}
