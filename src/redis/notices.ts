import { RedisUnavailableError } from "../errors.js";
import type { Reporter } from "../observe/events.js";
import { type Connection, hangUp, isReady, open, type RedisOption } from "./connect.js";

/**
 * The connection by which a process is notified of buckets that want to be looked at, and by which others see that it is
 * alive: its subscription ends with it.
 */
export class Notices {
  /** Run after the connection has come (back). */
  onReconnect: (() => void)[] = [];
  readonly #address: string;
  readonly #everybody: string;
  readonly #report: Reporter;
  #connection: Connection | undefined;
  #subscribed = false;
  #onWake: ((bucket: string) => void) | undefined;

  /**
   * @param address channel of this process.
   * @param everybody channel of all workers.
   */
  constructor(address: string, everybody: string, report: Reporter) {
    this.#address = address;
    this.#everybody = everybody;
    this.#report = report;
  }

  open(redis: RedisOption): void {
    const connection = open(redis, (error) => this.#report.connection(error));
    this.#connection = connection;
    connection.on("message", (_channel: string, bucket: string) => this.#onWake?.(bucket));
    connection.on("close", () => (this.#subscribed = false));
    connection.on("ready", () => void this.#subscribe());
  }

  /** From now on this process hears of every bucket that needs a worker. */
  attend(onWake: (bucket: string) => void): void {
    this.#onWake = onWake;
    if (this.#connection !== undefined && isReady(this.#connection)) void this.#subscribe();
  }

  async #subscribe(): Promise<void> {
    try {
      await this.#connection?.subscribe(this.#address, ...(this.#onWake === undefined ? [] : [this.#everybody]));
      this.#subscribed = true;
      this.#connection?.emit("subscribed");
      for (const listener of this.onReconnect) listener();
    } catch (error) {
      this.#report.connection(error);
    }
  }

  /** Waits until other processes can see that this one is alive. */
  async visible(patience: number): Promise<void> {
    const connection = this.#connection;
    if (this.#subscribed || connection === undefined) return;
    const seen = await new Promise<boolean>((resolve) => {
      const timer = setTimeout(() => done(false), patience);
      const onSeen = (): void => done(true);
      const done = (result: boolean): void => {
        clearTimeout(timer);
        connection.off("subscribed", onSeen);
        resolve(result);
      };
      connection.on("subscribed", onSeen);
    });
    if (!seen) throw new RedisUnavailableError(`Redis is not reachable (waited ${patience} ms)`);
  }

  close(): void {
    if (this.#connection !== undefined) hangUp(this.#connection);
  }
}
