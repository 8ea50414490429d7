import type { BucketRef } from "../limits/define.js";
import { texts } from "./reply.js";
import type { Session } from "./session.js";
import { sleep } from "./sleep.js";

/** What is held for a process that falls silent; everything is renewed three times within it. */
export const LEASE_MS = 15_000;

/** A granted permit leaves the queue before its grant arrives; only one that was not granted by then is lost. */
const GRANT_MS = 1000;

/** Ids renewed by one script: Redis serves nobody else meanwhile. */
const CHUNK = 500;

/** What this process holds in one bucket. */
interface Holdings {
  readonly ref: BucketRef;
  /** Waiting permits; the function is called when Redis no longer knows the permit. */
  readonly permits: Map<string, () => void>;
  /** Requests in flight, where the limit has a `concurrency`. */
  readonly flights: Set<string>;
  /** Durable calls, with the token of their lock. */
  readonly locks: Map<string, string>;
}

/** Renews leases and locks, one script per bucket in which this process holds anything. */
export class Keeper {
  readonly #session: Session;
  readonly #leaseMs: number;
  readonly #buckets = new Map<string, Holdings>();
  #timer: NodeJS.Timeout | undefined;

  constructor(session: Session, leaseMs: number = LEASE_MS) {
    this.#session = session;
    this.#leaseMs = leaseMs;
  }

  get leaseMs(): number {
    return this.#leaseMs;
  }

  permit(ref: BucketRef, id: string, onMissing: () => void): () => void {
    const holdings = this.#holdings(ref);
    holdings.permits.set(id, onMissing);
    return () => {
      holdings.permits.delete(id);
      this.#forget(holdings);
    };
  }

  flight(ref: BucketRef, id: string): () => void {
    const holdings = this.#holdings(ref);
    holdings.flights.add(id);
    return () => {
      holdings.flights.delete(id);
      this.#forget(holdings);
    };
  }

  lock(ref: BucketRef, id: string, token: string): () => void {
    const holdings = this.#holdings(ref);
    holdings.locks.set(id, token);
    return () => {
      holdings.locks.delete(id);
      this.#forget(holdings);
    };
  }

  #holdings(ref: BucketRef): Holdings {
    let holdings = this.#buckets.get(ref.bucket);
    if (holdings === undefined) {
      holdings = { ref, permits: new Map(), flights: new Set(), locks: new Map() };
      this.#buckets.set(ref.bucket, holdings);
    }
    this.#timer ??= setInterval(() => this.renewAll(), this.#leaseMs / 3);
    return holdings;
  }

  #forget(holdings: Holdings): void {
    const { ref, permits, flights, locks } = holdings;
    if (permits.size + flights.size + locks.size > 0 || this.#buckets.get(ref.bucket) !== holdings) return;
    this.#buckets.delete(ref.bucket);
    if (this.#buckets.size === 0) this.close();
  }

  /** Also run when the connection has come back: what was lost meanwhile is told at once. */
  renewAll(): void {
    for (const holdings of this.#buckets.values()) {
      this.#renew(holdings).catch((error: unknown) => this.#session.report.connection(error));
    }
  }

  async #renew({ ref, permits, flights, locks }: Holdings): Promise<void> {
    const waiting = [...permits.keys()];
    const flying = [...flights];
    const locked = [...locks];
    for (let at = 0; at === 0 || at < Math.max(waiting.length, flying.length, locked.length); at += CHUNK) {
      const chunk = [waiting, flying].map((ids) => ids.slice(at, at + CHUNK));
      const pairs = locked.slice(at, at + CHUNK);
      const counts = [...chunk.map((ids) => ids.length), pairs.length];
      const args = ["", this.#session.address, this.#leaseMs * 1000, ...counts, ...chunk.flat(), ...pairs.flat()];
      const [, , missing, lost] = await this.#session.run(ref, "renew", args, this.#leaseMs);
      for (const id of texts(missing)) setTimeout(() => permits.get(id)?.(), GRANT_MS).unref();
      // A call that ended before this script ran has no lock either; its reply has come too, and is about to be seen.
      if (pairs.length > 0) await sleep(0);
      for (const id of texts(lost)) if (locks.has(id)) this.#session.report.warn(lostLock(id));
    }
  }

  close(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
  }
}

const lostLock = (id: string): Error => new Error(`The lock on call ${id} is lost: another worker may have it`);
