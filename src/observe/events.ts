import { EventEmitter } from "node:events";
import { ClosedError } from "../errors.js";
import { plainly } from "../redis/answer.js";

/**
 * What a client or worker tells about itself; without listeners nothing happens. The `id` of a durable call is that of
 * its ticket: `client.ticket(id)`.
 */
export interface SpillwayEvents {
  /** Something a person should know: an eviction policy that loses calls, a lost connection, a failed renewal. */
  warning: [Error];
  /** Calls wait in this bucket and no worker is there to take them. At most once a minute per bucket. */
  unattended: [{ limit: string; bucket: string }];
  /** A bucket was paused because the server asked for it. */
  pause: [{ limit: string; bucket: string; until: Date; reason: string }];
  /** The server refused a call of an `adaptive` limit: calls start at this share (0 to 1) of the rate now. */
  slow: [{ limit: string; bucket: string; share: number; reason: string }];
  /** A waiting call left the queue without being sent. Where a `fetch` or `run` gives up by itself, its error tells. */
  drop: [{ limit: string; bucket: string; id: string; why: string }];
  /** An attempt of a durable call failed. */
  retry: [{ limit: string; bucket: string; id: string; attempt: number; cause: string; willRetry: boolean }];
  /** All attempts of a durable call failed; it comes back to the queue later (`redeliver`). */
  redeliver: [{ limit: string; bucket: string; id: string; at: Date; cause: string }];
  /** A durable call ended. */
  finish: [{ limit: string; bucket: string; id: string; ok: boolean; status: number | undefined; attempts: number }];
}

const QUIET_MS = 60_000;
/** To tell something once more is no harm; to remember all buckets that ever were takes memory without bound. */
const MOST_BUCKETS = 10_000;
const MINIMUM_REDIS = 7;

/** Turns what happens inside into events. */
export class Reporter {
  readonly events: EventEmitter<SpillwayEvents> = new EventEmitter<SpillwayEvents>();
  lastConnectionError: unknown;
  #unattended = new Map<string, number>();
  #odd = new Map<string, number>();
  #said = new Set<string>();

  /** What a listener throws is an uncaught exception, as of any emitter, but does not stop a call on its way. */
  tell<K extends keyof SpillwayEvents>(name: K, event: SpillwayEvents[K][0]): void {
    try {
      EventEmitter.prototype.emit.call(this.events, name, event);
    } catch (error) {
      process.nextTick(() => {
        throw error;
      });
    }
  }

  warn(error: unknown): void {
    this.tell("warning", error instanceof Error ? error : new Error(String(error)));
  }

  /** Connections fail by the dozen while a server is away; each distinct reason is told once until it is back. */
  connection(cause: unknown): void {
    // What ends after closing could not tell Redis so: that was asked for.
    if (cause instanceof ClosedError) return;
    const error = plainly(cause);
    this.lastConnectionError = error;
    const reason = error instanceof Error ? error.message : String(error);
    if (this.#said.has(reason)) return;
    this.#said.add(reason);
    this.warn(error);
  }

  /** The server has answered: reads from INFO what would lose calls. */
  server(info: string): void {
    this.lastConnectionError = undefined;
    this.#said.clear();
    const version = /^(?:valkey|redis)_version:(\d+)\.(\S+)/m.exec(info);
    if (version !== null && Number(version[1]) < MINIMUM_REDIS) {
      this.warn(new Error(`Expected Redis ${MINIMUM_REDIS}.0 or later, or Valkey, got ${version[1]}.${version[2]}`));
    }
    const policy = /^maxmemory_policy:(\S+)/m.exec(info)?.[1];
    if (policy !== undefined && policy !== "noeviction") {
      this.warn(
        new Error(`Redis runs with maxmemory-policy ${policy}: it may evict waiting calls; set it to noeviction`),
      );
    }
  }

  embedded(): void {
    process.emitWarning(
      "No `redis` and no REDIS_URL: using an embedded Valkey, in memory and for this machine only. Not for production.",
      { type: "SpillwayWarning", code: "SPILLWAY_EMBEDDED" },
    );
  }

  /** What is odd about a server's headers is odd with every response: at most one warning a minute and bucket. */
  odd(limit: string, bucket: string, message: string): void {
    if (this.#due(this.#odd, bucket)) this.warn(new Error(`${limit}: ${message}`));
  }

  #due(told: Map<string, number>, bucket: string): boolean {
    const now = Date.now();
    if (now - (told.get(bucket) ?? -Infinity) < QUIET_MS) return false;
    if (told.size >= MOST_BUCKETS) told.clear();
    told.set(bucket, now);
    return true;
  }

  unattended(limit: string, bucket: string): void {
    if (!this.#due(this.#unattended, bucket)) return;
    this.tell("unattended", { limit, bucket });
  }
}
