import { ClosedError, RedisUnavailableError } from "../errors.js";
import { Reporter } from "../observe/events.js";
import { answered, PATIENCE_MS } from "../redis/answer.js";
import { type Connection, hangUp, isReady, open, type RedisOption, whenReady } from "../redis/connect.js";
import { locate } from "../redis/locate.js";
import { runScript, type ScriptName } from "../redis/scripts.js";

/** A connection of this process, and how many limiters use it. */
class Shared {
  users = 0;
  lastError: unknown;
  readonly opened: Promise<Connection>;
  #release: () => Promise<void> = async () => {};

  constructor(option: RedisOption | undefined) {
    this.opened = this.#open(option);
    // Whoever uses it gets the error; until then it must not end the process.
    this.opened.catch(() => {});
  }

  async #open(option: RedisOption | undefined): Promise<Connection> {
    const { redis, release } = await locate(option, new Reporter());
    this.#release = release;
    return open(redis, (error) => (this.lastError = error));
  }

  async close(): Promise<void> {
    const connection = await this.opened.catch(() => undefined);
    if (connection !== undefined) hangUp(connection);
    await this.#release();
  }
}

const connections = new Map<RedisOption | undefined, Shared>();

/**
 * What a limiter sends its commands over. All that were given the same Redis share one connection, which is closed with
 * the last of them. A command that Redis does not answer within a second fails; it is not tried again later.
 */
export class LimiterConnection {
  readonly #option: RedisOption | undefined;
  readonly #shared: Shared;
  readonly #running = new Set<Promise<unknown>>();
  #closed: Promise<void> | undefined;

  constructor(redis: RedisOption | undefined) {
    this.#option = redis ?? process.env["REDIS_URL"];
    this.#shared = connections.get(this.#option) ?? new Shared(redis);
    this.#shared.users++;
    connections.set(this.#option, this.#shared);
  }

  /** Runs one of our scripts. */
  script(name: ScriptName, key: string, args: readonly (string | number)[]): Promise<unknown> {
    return this.command((connection) => runScript(connection, name, key, args));
  }

  /**
   * Sends a command.
   *
   * @throws {RedisUnavailableError} when there is no answer within a second.
   * @throws {ClosedError} after {@link close}.
   */
  async command<T>(send: (connection: Connection) => Promise<T>): Promise<T> {
    if (this.#closed !== undefined) throw new ClosedError("The limiter is closed");
    const running = this.#ready().then((connection) => answered(send(connection), PATIENCE_MS));
    this.#running.add(running);
    try {
      return await running;
    } finally {
      this.#running.delete(running);
    }
  }

  async #ready(): Promise<Connection> {
    const connection = await this.#shared.opened;
    if (isReady(connection) || (await whenReady(connection, PATIENCE_MS))) return connection;
    const cause = this.#shared.lastError;
    throw new RedisUnavailableError(`Redis is not reachable (waited ${PATIENCE_MS} ms)`, { cause });
  }

  /** What is under way still ends. */
  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    await Promise.allSettled(this.#running);
    if (--this.#shared.users > 0) return;
    if (connections.get(this.#option) === this.#shared) connections.delete(this.#option);
    await this.#shared.close();
  }
}
