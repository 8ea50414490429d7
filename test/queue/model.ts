import type { Admitted, Taken } from "../helpers/scripts.js";

export interface ModelCall {
  readonly id: string;
  readonly kind: "permit" | "request";
  readonly client: string;
  deadline: number;
  /** Its place in the order of admission. */
  order: number;
  /** It waits for the second time, and has no place any more. */
  again: boolean;
  /** It is in the hands of a worker, or was. */
  taken: boolean;
}

export interface ModelOptions {
  readonly capacity: number;
  readonly overflow: "reject" | "drop-oldest";
  readonly concurrency: number | undefined;
}

const LEASE = 15_000_000;

/** The bounded queue as DESIGN says it, in memory. When slots come is the gate's affair: those are taken as given. */
export class QueueModel {
  readonly options: ModelOptions;
  /** The next one first. */
  wait: ModelCall[] = [];
  readonly active = new Map<string, { readonly call: ModelCall; readonly token: string; locked: boolean }>();
  readonly failed: { readonly call: ModelCall; readonly at: number }[] = [];
  /** How each call ended. */
  readonly ended = new Map<string, string>();
  readonly accepted = new Set<string>();
  readonly inflight = new Map<string, number>();
  readonly #slots = new Map<string, number>();
  readonly #leases = new Map<string, number>();
  #admitted = 0;
  readonly #alive: ReadonlySet<string>;

  constructor(options: ModelOptions, alive: readonly string[]) {
    this.options = options;
    this.#alive = new Set(alive);
  }

  depth(now: number): number {
    const toCome = [...this.#slots.values()].filter((slot) => slot > now).length;
    return this.wait.filter(({ again }) => !again).length + toCome;
  }

  get again(): number {
    return this.wait.filter(({ again }) => again).length;
  }

  #free(now: number): number {
    for (const [id, until] of this.inflight) if (until <= now) this.inflight.delete(id);
    return (this.options.concurrency ?? Infinity) - this.inflight.size;
  }

  /** Throws unless the reply is right; takes it over. */
  admit(now: number, calls: readonly ModelCall[], mode: "all" | "fit", reply: Admitted): void {
    const { capacity, overflow, concurrency } = this.options;
    const depth = this.depth(now);
    const [first] = calls;
    if (reply.state === "GRANTED" && first !== undefined) {
      check(first.kind === "permit" && this.wait.length === 0, "granted at once only when nothing waits");
      check(depth < capacity, "granted within capacity");
      check(this.#free(now) > 0, "granted within concurrency");
      this.accepted.add(first.id);
      this.#slots.set(first.id, reply.slot);
      if (concurrency !== undefined) this.inflight.set(first.id, now + LEASE);
      this.ended.set(first.id, "granted");
      return;
    }
    let room = capacity - depth;
    const dropped: string[] = [];
    const droppable = this.wait.filter(({ again }) => !again);
    if (overflow === "drop-oldest" && (mode === "fit" || calls.length <= room + droppable.length)) {
      while (room < Math.min(calls.length, capacity)) {
        const oldest = droppable.shift();
        if (oldest === undefined) break;
        dropped.push(oldest.id);
        room++;
      }
    }
    if (calls.length > room && (mode === "all" || room <= 0)) {
      check(reply.state === "FULL", `full, got ${reply.state}`);
      check(reply.state === "FULL" && reply.depth === depth, "the depth when full");
      return;
    }
    check(reply.state === "ADDED", `added, got ${reply.state}`);
    if (reply.state !== "ADDED") return;
    const count = Math.min(calls.length, room);
    check(reply.count === count, `${count} added, got ${reply.count}`);
    check(
      same(
        reply.dropped.map(([id]) => id),
        dropped,
      ),
      "the oldest dropped",
    );
    for (const id of dropped) this.#leave(id, "full");
    for (const call of calls.slice(0, count)) {
      this.accepted.add(call.id);
      call.order = ++this.#admitted;
      this.wait.push(call);
      if (call.kind === "permit") this.#leases.set(call.client, now + LEASE);
    }
    check(reply.depth === this.depth(now), "the depth after adding");
  }

  #leave(id: string, how: string): void {
    this.wait = this.wait.filter((call) => call.id !== id);
    this.ended.set(id, how);
  }

  take(now: number, token: string, most: number, reply: Taken): void {
    const free = this.#free(now);
    const dropped: string[] = [];
    const taken: string[] = [];
    for (;;) {
      const [head] = this.wait;
      if (head === undefined || taken.length >= most) break;
      const isAlive = this.#alive.has(head.client) && (this.#leases.get(head.client) ?? 0) > now;
      // What waits for a second time may have been sent: waiting is not what ends it.
      const isLate = now > head.deadline && !head.again;
      if (isLate || (head.kind === "permit" && !isAlive)) {
        const why = isLate ? "expired" : "gone";
        this.#leave(head.id, why);
        dropped.push(`${why} ${head.id}`);
        continue;
      }
      if (taken.length >= free || taken.length >= reply.calls.length) break;
      this.wait.shift();
      const slot = reply.calls[taken.length]?.slot ?? Number.NaN;
      if (!head.again) this.#slots.set(head.id, slot);
      head.again = false;
      head.taken = true;
      taken.push(head.id);
      if (this.options.concurrency !== undefined) this.inflight.set(head.id, now + LEASE);
      if (head.kind === "permit") this.ended.set(head.id, "granted");
      else this.active.set(head.id, { call: head, token, locked: true });
    }
    check(
      same(
        reply.calls.map(({ id }) => id),
        taken,
      ),
      "the oldest calls taken, in order",
    );
    check(
      same(
        reply.dropped.map(([why, id]) => `${why} ${id}`),
        dropped,
      ),
      "what expired or is gone dropped",
    );
  }

  finish(now: number, id: string, token: string, end: "completed" | "failed"): "OK" | "LOST" {
    const held = this.active.get(id);
    const waiting = this.wait.find((call) => call.id === id);
    if (held !== undefined ? held.locked && held.token !== token : waiting === undefined) return "LOST";
    const call = held?.call ?? waiting;
    this.active.delete(id);
    this.#leave(id, end);
    this.#slots.delete(id);
    this.inflight.delete(id);
    if (call !== undefined && end === "failed") this.failed.push({ call, at: Math.floor(now / 1000) });
    return "OK";
  }

  cancel(id: string): "CANCELLED" | "TAKEN" | "UNKNOWN" {
    if (this.active.has(id)) return "TAKEN";
    if (!this.wait.some((call) => call.id === id)) return "UNKNOWN";
    this.#leave(id, "cancelled");
    return "CANCELLED";
  }

  clear(): string[] {
    const ids = this.wait.map(({ id }) => id);
    for (const id of ids) this.#leave(id, "cleared");
    return ids;
  }

  #comeBack(now: number, call: ModelCall): void {
    this.active.delete(call.id);
    this.inflight.delete(call.id);
    call.again = (this.#slots.get(call.id) ?? 0) <= now;
    this.#slots.delete(call.id);
    // Those that were admitted before it, and came back before it, stay ahead.
    const behind = this.wait.findIndex(({ order }) => order > call.order);
    this.wait.splice(behind === -1 ? this.wait.length : behind, 0, call);
  }

  requeue(now: number, id: string, token: string): "OK" | "LOST" {
    const held = this.active.get(id);
    if (held === undefined || !held.locked || held.token !== token) return "LOST";
    this.#comeBack(now, held.call);
    return "OK";
  }

  stall(id: string): void {
    const held = this.active.get(id);
    if (held !== undefined) held.locked = false;
  }

  /** @returns ids put back and ids dropped. */
  recover(now: number): { recovered: string[]; dropped: string[] } {
    const dropped: string[] = [];
    for (;;) {
      const [head] = this.wait;
      if (head === undefined) break;
      const isAlive = this.#alive.has(head.client) && (this.#leases.get(head.client) ?? 0) > now;
      const isLate = head.deadline < now && !head.again;
      if (!isLate && (head.kind !== "permit" || isAlive)) break;
      const why = isLate ? "expired" : "gone";
      dropped.push(`${why} ${head.id}`);
      this.#leave(head.id, why);
    }
    const stalled = [...this.active.values()].filter(({ locked }) => !locked).map(({ call }) => call);
    stalled.sort((a, b) => b.order - a.order);
    for (const call of stalled) this.#comeBack(now, call);
    return { recovered: stalled.map(({ id }) => id).toReversed(), dropped };
  }

  retryFailed(now: number): number {
    const room = Math.max(0, this.options.capacity - this.depth(now));
    this.failed.sort((a, b) => a.at - b.at || (a.call.id < b.call.id ? -1 : 1));
    const retried = this.failed.splice(0, room);
    for (const { call } of retried) {
      this.ended.delete(call.id);
      call.again = false;
      call.deadline = Infinity;
      call.order = ++this.#admitted;
      this.wait.push(call);
    }
    return retried.length;
  }
}

function check(holds: boolean, what: string): void {
  if (!holds) throw new Error(`Expected: ${what}`);
}

const same = (a: readonly (string | undefined)[], b: readonly string[]): boolean => a.join() === b.join();
