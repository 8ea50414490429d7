import { randomBytes } from "node:crypto";
import { ClosedError, RedisUnavailableError } from "../errors.js";
import type { BucketRef, Limits } from "../limits/define.js";
import type { Reporter } from "../observe/events.js";
import { ServerClock } from "./clock.js";
import { answered, LONG_PATIENCE_MS, PATIENCE_MS } from "./answer.js";
import { type Connection, hangUp, isCluster, isReady, open, type RedisOption, whenReady } from "./connect.js";
import { Declarations } from "./declarations.js";
import { locate } from "./locate.js";
import { Notices } from "./notices.js";
import { list, number } from "./reply.js";
import { sleep } from "./sleep.js";
import { loadScripts, runScript, runScriptBuffer, type ScriptName } from "./scripts.js";

export interface SessionOptions {
  readonly redis?: RedisOption | undefined;
  readonly prefix?: string | undefined;
  readonly limits: Limits;
}

/** How long a worker takes nothing after its connection was lost and came back; more than producers take to connect. */
const HOLD_MS = 1000;

/**
 * What one process shares with Redis: a connection for commands, one to be notified and known to be alive by, the
 * server's clock, and which buckets it has declared to it.
 */
export class Session {
  readonly id: string = randomBytes(9).toString("base64url");
  readonly limits: Limits;
  readonly prefix: string;
  /** Name of this process as a channel (who is subscribed is alive) and as a list (its mailbox). */
  readonly address: string;
  readonly clock: ServerClock = new ServerClock();
  readonly notices: Notices;
  readonly report: Reporter;

  #redis: RedisOption | undefined;
  #opening: Promise<void>;
  #release: () => Promise<void> = async () => {};
  #commands: Connection | undefined;
  #running = new Set<Promise<unknown>>();
  #declarations = new Declarations(this);
  /** The server's clock is known, and it knows the scripts. */
  #fit = false;
  #preparing: Promise<void> | undefined;
  /** The connection was lost and is not back yet; when it is, workers hold back until #heldUntil. */
  #lost = false;
  #heldUntil = 0;
  /** No more connections are made. */
  #closed = false;
  /** No more commands are taken. */
  #over = false;

  constructor(options: SessionOptions, report: Reporter) {
    this.limits = options.limits;
    this.prefix = options.prefix ?? "spillway";
    this.address = `${this.prefix}:at:${this.id}`;
    this.report = report;
    this.notices = new Notices(this.address, `${this.prefix}:wake`, report);
    this.#opening = this.#open(options.redis);
    // Whoever uses the session gets the error; until then it must not end the process.
    this.#opening.catch(() => {});
  }

  async #open(option: RedisOption | undefined): Promise<void> {
    const located = await locate(option, this.report);
    this.#redis = located.redis;
    this.#release = located.release;
    if (this.#closed) return;
    const commands = open(located.redis, (error) => this.report.connection(error));
    this.#commands = commands;
    commands.on("ready", () => void this.#greet(commands));
    commands.on("close", () => (this.#lost = true));
    this.notices.open(located.redis);
  }

  /** Learns whether the server may be used at all, and makes the connection fit for calls. */
  async #greet(commands: Connection): Promise<void> {
    this.#fit = false;
    if (this.#lost) this.holdBack();
    this.#lost = false;
    try {
      await this.#prepareOnce(commands);
      this.report.server(await commands.info());
    } catch (error) {
      this.report.connection(error);
    }
  }

  /** Once for all calls that wait for it: the scripts have half a megabyte. */
  #prepareOnce(commands: Connection): Promise<void> {
    this.#preparing ??= this.#prepare(commands).finally(() => (this.#preparing = undefined));
    return this.#preparing;
  }

  /** Learns the server's clock, and brings it the scripts: the first call of each is then as quick as any other. */
  async #prepare(commands: Connection): Promise<void> {
    const sent = ServerClock.local();
    const [seconds, micros] = await commands.time();
    this.clock.sample(sent, Number(seconds) * 1e6 + Number(micros), ServerClock.local());
    // The nodes of a cluster get them when they are first needed.
    if (!this.cluster) await loadScripts(commands);
    this.#fit = true;
  }

  /** Opens a further connection, for a command that blocks. */
  async connection(): Promise<Connection> {
    await this.#opening;
    if (this.#redis === undefined || this.#closed) throw new ClosedError();
    return open(this.#redis, (error) => this.report.connection(error));
  }

  /** The connection for commands, ready, or an error within the caller's patience. */
  async commands(patience: number = PATIENCE_MS): Promise<Connection> {
    if (this.#over) throw new ClosedError();
    if (this.#commands === undefined) await this.#opening;
    const commands = this.#commands;
    if (commands === undefined) throw new ClosedError();
    if (!isReady(commands) && (this.#closed || !(await whenReady(commands, patience)))) {
      if (this.#closed) throw new ClosedError();
      throw new RedisUnavailableError(`Redis is not reachable (waited ${patience} ms)`, {
        cause: this.report.lastConnectionError,
      });
    }
    if (!this.#fit) await answered(this.#prepareOnce(commands), patience);
    return commands;
  }

  /** Waits until other processes can see that this one is alive. */
  async visible(patience: number = PATIENCE_MS): Promise<void> {
    if (this.#commands === undefined) await this.#opening;
    if (this.#closed) throw new ClosedError();
    await this.notices.visible(patience);
  }

  /**
   * Waits until a worker may take calls. A server that dies may have stored calls whose producers never heard of it, and
   * have reported them as failed: after an outage they get time to take them out again.
   */
  async whenCalm(signal: AbortSignal): Promise<void> {
    await this.commands(LONG_PATIENCE_MS);
    const left = this.#heldUntil - performance.now();
    if (left > 0) await sleep(left, signal);
  }

  /** The server was away, or has stood still: see {@link whenCalm}. */
  holdBack(): void {
    this.#heldUntil = performance.now() + HOLD_MS;
  }

  key(bucket: string): string {
    return `${this.prefix}:{${bucket}}:gate`;
  }

  /** All buckets that were used within the last hour, with the time of their last use. */
  get bucketsKey(): string {
    return `${this.prefix}:buckets`;
  }

  /** The server's time in whole ms. */
  milliseconds(): number {
    return Math.round(this.clock.now() / 1000);
  }

  get cluster(): boolean {
    return this.#redis !== undefined && isCluster(this.#redis);
  }

  /**
   * Runs a script on a bucket and returns its reply. Declares the bucket first where this process has not yet done so
   * (on the same connection, so without waiting), and again where its keys have gone.
   */
  async run(
    ref: BucketRef,
    script: ScriptName,
    args: readonly (string | number | Buffer)[],
    patience: number = PATIENCE_MS,
  ): Promise<readonly unknown[]> {
    const commands = await this.commands(patience);
    this.#declarations.once(ref, commands);
    const running = this.#run(commands, ref, script, args, patience);
    this.#running.add(running);
    try {
      return await running;
    } finally {
      this.#running.delete(running);
    }
  }

  async #run(
    commands: Connection,
    ref: BucketRef,
    script: ScriptName,
    args: readonly (string | number | Buffer)[],
    patience: number,
  ): Promise<readonly unknown[]> {
    const first = await this.#send(commands, ref, script, args, patience);
    if (first[0] !== "UNDECLARED") return first;
    // The server has lost its memory, or forgotten an idle bucket: it needs to know of both again.
    await answered(this.#declarations.anew(ref, commands), patience);
    const second = await this.#send(commands, ref, script, args, patience);
    if (second[0] !== "UNDECLARED") return second;
    throw new RedisUnavailableError(`Redis does not take the policy of "${ref.limit.name}"`, {
      cause: this.report.lastConnectionError,
    });
  }

  async #send(
    commands: Connection,
    ref: BucketRef,
    script: ScriptName,
    args: readonly (string | number | Buffer)[],
    patience: number,
  ): Promise<readonly unknown[]> {
    const sent = ServerClock.local();
    const reply = list(await answered(runScript(commands, script, this.key(ref.bucket), args), patience));
    if (reply.length > 1) this.clock.sample(sent, number(reply[1]), ServerClock.local());
    return reply;
  }

  /** As {@link run}, for replies that hold bytes and no time. */
  async runBuffer(ref: BucketRef, script: ScriptName, args: readonly (string | number)[]): Promise<readonly unknown[]> {
    const commands = await this.commands();
    return list(await answered(runScriptBuffer(commands, script, this.key(ref.bucket), args), PATIENCE_MS));
  }

  /** Writes the policies of all limits whose bucket is known beforehand. */
  async declareAll(): Promise<void> {
    const commands = await this.commands();
    for (const name of this.limits.names) {
      const oneBucket = !name.startsWith("*") && this.limits.get(name)?.key === undefined;
      if (oneBucket) this.#declarations.once(this.limits.resolve(name), commands);
    }
  }

  /** Buckets that were used within the last hour or still hold calls. */
  async buckets(): Promise<string[]> {
    const commands = await this.commands();
    return answered(commands.zrange(this.bucketsKey, 0, "-1"), LONG_PATIENCE_MS);
  }

  /** What closing has caused, such as cancellations, still reaches the server if it is there. */
  async #settled(): Promise<void> {
    const until = performance.now() + PATIENCE_MS;
    const enough = new AbortController();
    do {
      await Promise.race([Promise.allSettled(this.#running), sleep(PATIENCE_MS, enough.signal)]);
      // What has ended may cause more: a permit that was accepted just now is cancelled.
      await sleep(0);
    } while (this.#running.size > 0 && performance.now() < until);
    enough.abort();
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await this.#opening.catch(() => {});
    await this.#settled();
    this.#over = true;
    if (this.#commands !== undefined) hangUp(this.#commands);
    this.notices.close();
    await this.#release();
  }
}
