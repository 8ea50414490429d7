import type { Admitted, Taken } from "../helpers/scripts.js";

export interface ModelCall {
  readonly id: string;
  readonly kind: "permit" | "request";
  readonly client: string;
  /** 1 high, 2 normal, 3 low: what comes back is normal. */
  rank: number;
  /** Under which only one call may wait, and what one does that finds another. */
  readonly key: string | undefined;
  readonly refuse: boolean;
  /** A bound of its own, in ms. */
  readonly ownMaxWait: number | undefined;
  deadline: number;
  /** Its place in the order of admission. */
  order: number;
  /** It waits for the second time, and has no place any more. */
  again: boolean;
  /** It is in the hands of a worker, or was. */
  taken: boolean;
  /** It was taken since it came, or was retried by hand: it does not hold its key any more. */
  started: boolean;
}

export interface ModelOptions {
  readonly capacity: number;
  readonly overflow: "reject" | "drop-oldest";
  readonly concurrency: number | undefined;
}

const LEASE = 15_000_000;
const NORMAL = 2;

/** The bounded queue as DESIGN says it, in memory. When slots come is the gate's affair: those are taken as given. */
export class QueueModel {
  readonly options: ModelOptions;
  /** The next one first. */
  wait: ModelCall[] = [];
  /** To be redelivered, the next one first. */
  aside: { readonly call: ModelCall; readonly due: number }[] = [];
  readonly #keys = new Map<string, ModelCall>();
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
    return this.wait.filter(({ again }) => again).length + this.aside.length;
  }

  /** At the end of its rank. */
  #append(call: ModelCall): void {
    const behind = this.wait.findIndex(({ rank }) => rank > call.rank);
    this.wait.splice(behind === -1 ? this.wait.length : behind, 0, call);
  }

  #holderOf(key: string | undefined): ModelCall | undefined {
    const call = key === undefined ? undefined : this.#keys.get(key);
    return call !== undefined && !call.started && this.wait.includes(call) ? call : undefined;
  }

  /** Which call each of them joins; "refused" when one may not. */
  #joined(calls: readonly ModelCall[]): (ModelCall | undefined)[] | "refused" {
    const held = new Map<string, ModelCall>();
    const joined: (ModelCall | undefined)[] = [];
    for (const call of calls) {
      const holder = held.get(call.key ?? "") ?? this.#holderOf(call.key);
      if (holder !== undefined && call.refuse) return "refused";
      if (holder === undefined && call.key !== undefined) held.set(call.key, call);
      joined.push(holder);
    }
    return joined;
  }

  /** Those that are due stand at the end of the normal ones, and that is their place in the order from then on. */
  #promote(now: number): void {
    const due = this.aside.filter((one) => one.due <= Math.floor(now / 1000));
    this.aside = this.aside.filter((one) => !due.includes(one));
    for (const { call } of due) {
      call.order = ++this.#admitted;
      this.#append(call);
    }
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
    const joined = this.#joined(calls);
    if (joined === "refused") {
      check(reply.state === "DUPLICATE", `a duplicate, got ${reply.state}`);
      return;
    }
    const fresh = calls.filter((_call, i) => joined[i] === undefined);
    const lowest = Math.max(...fresh.map(({ rank }) => rank));
    let room = capacity - depth;
    const dropped: string[] = [];
    const droppable = this.wait
      .filter(({ again, rank }) => !again && rank >= lowest)
      .toSorted((a, b) => b.rank - a.rank);
    if (overflow === "drop-oldest" && (mode === "fit" || fresh.length <= room + droppable.length)) {
      while (room < Math.min(fresh.length, capacity)) {
        const oldest = droppable.shift();
        if (oldest === undefined) break;
        dropped.push(oldest.id);
        room++;
      }
    }
    if (fresh.length > room && (mode === "all" || (room <= 0 && joined[0] === undefined))) {
      check(reply.state === "FULL", `full, got ${reply.state}`);
      check(reply.state === "FULL" && reply.depth === depth, "the depth when full");
      return;
    }
    check(reply.state === "ADDED", `added, got ${reply.state}`);
    if (reply.state !== "ADDED") return;
    const leftOut = fresh[Math.max(0, room)];
    const count = leftOut === undefined ? calls.length : calls.indexOf(leftOut);
    const known = joined.slice(0, count).flatMap((call) => call?.id ?? []);
    check(same(reply.knownAs, known), "those that join others");
    check(reply.count === count, `${count} added, got ${reply.count}`);
    check(
      same(
        reply.dropped.map(([id]) => id),
        dropped,
      ),
      "the oldest dropped",
    );
    for (const id of dropped) this.#leave(id, "full");
    for (const [i, call] of calls.slice(0, count).entries()) {
      if (joined[i] !== undefined) continue;
      this.accepted.add(call.id);
      call.order = ++this.#admitted;
      this.#append(call);
      if (call.key !== undefined) this.#keys.set(call.key, call);
      if (call.kind === "permit") this.#leases.set(call.client, now + LEASE);
    }
    check(reply.depth === this.depth(now), "the depth after adding");
  }

  #leave(id: string, how: string): void {
    this.wait = this.wait.filter((call) => call.id !== id);
    this.aside = this.aside.filter(({ call }) => call.id !== id);
    this.ended.set(id, how);
  }

  take(now: number, token: string, most: number, reply: Taken): void {
    this.#promote(now);
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
      head.started = true;
      head.rank = NORMAL;
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

  /** A call whose attempts have all failed; whoever holds it, and while nobody else does, whoever had it. */
  redeliver(now: number, id: string, token: string, delayMs: number): "OK" | "LOST" {
    const held = this.active.get(id);
    const call = held?.call ?? this.wait.find((one) => one.id === id);
    if (call === undefined || (held?.locked === true && held.token !== token)) return "LOST";
    this.active.delete(id);
    this.wait = this.wait.filter((one) => one !== call);
    this.#slots.delete(id);
    this.inflight.delete(id);
    call.again = true;
    this.aside.push({ call, due: Math.floor(now / 1000) + delayMs });
    this.aside.sort((a, b) => a.due - b.due);
    return "OK";
  }

  cancel(id: string): "CANCELLED" | "TAKEN" | "UNKNOWN" {
    if (this.active.has(id)) return "TAKEN";
    const waits = [...this.wait, ...this.aside.map(({ call }) => call)];
    if (!waits.some((call) => call.id === id)) return "UNKNOWN";
    this.#leave(id, "cancelled");
    return "CANCELLED";
  }

  clear(): string[] {
    const ranked = this.wait.filter(({ rank }) => rank !== NORMAL);
    const others = this.wait.filter(({ rank }) => rank === NORMAL);
    const ids = [...ranked, ...others, ...this.aside.map(({ call }) => call)].map(({ id }) => id);
    for (const id of ids) this.#leave(id, "cleared");
    return ids;
  }

  #comeBack(now: number, call: ModelCall): void {
    this.active.delete(call.id);
    this.inflight.delete(call.id);
    call.again = (this.#slots.get(call.id) ?? 0) <= now;
    call.started = call.again;
    this.#slots.delete(call.id);
    // Those that were admitted before it, and came back before it, stay ahead.
    const behind = this.wait.findIndex(({ rank, order }) => rank > NORMAL || (rank === NORMAL && order > call.order));
    this.wait.splice(behind === -1 ? this.wait.length : behind, 0, call);
    if (!call.started) this.#hold(call);
  }

  /** Unless another one waits under its key. */
  #hold(call: ModelCall): void {
    if (call.key !== undefined && this.#holderOf(call.key) === undefined) this.#keys.set(call.key, call);
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
    const drop = (call: ModelCall, why: string): void => {
      dropped.push(`${why} ${call.id}`);
      this.#leave(call.id, why);
    };
    const isLate = (call: ModelCall): boolean => call.deadline < now && !call.again;
    for (const of of [1, NORMAL, 3]) {
      for (;;) {
        const head = this.wait.find(({ rank }) => rank === of);
        if (head === undefined) break;
        const isAlive = this.#alive.has(head.client) && (this.#leases.get(head.client) ?? 0) > now;
        if (!isLate(head) && (head.kind !== "permit" || isAlive)) break;
        drop(head, isLate(head) ? "expired" : "gone");
      }
    }
    const bounded = this.wait.filter((call) => call.ownMaxWait !== undefined && isLate(call) && !call.started);
    for (const call of bounded.toSorted((a, b) => a.deadline - b.deadline || (a.id < b.id ? -1 : 1)))
      drop(call, "expired");
    this.#promote(now);
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
      call.started = false;
      call.deadline = Infinity;
      call.rank = NORMAL;
      call.order = ++this.#admitted;
      this.#hold(call);
      this.#append(call);
    }
    return retried.length;
  }
}

function check(holds: boolean, what: string): void {
  if (!holds) throw new Error(`Expected: ${what}`);
}

const same = (a: readonly (string | undefined)[], b: readonly string[]): boolean => a.join() === b.join();
