/** The gate, written once more and without Redis: GCRA in exact fractions, and a log of every start, never trimmed. */

export interface ModelPolicy {
  readonly limit: number;
  readonly per: number;
  readonly late: number;
  readonly burst: number;
  readonly rules: readonly { readonly limit: number; readonly per: number }[];
}

export interface Held {
  readonly id: string;
  readonly slot: number;
  readonly reservedAt: number;
}

interface State {
  readonly tat: bigint;
  readonly last: number;
}

const NEAR = 75_000;
const FAR = 25_000;

export class GateModel {
  readonly policy: ModelPolicy;
  /** Slots in which calls start: neither given back nor recalled. */
  standing: Held[] = [];
  #state: State = { tat: 0n, last: 0 };
  #undo: { readonly id: string; readonly state: State } | undefined;
  #pausedUntil = 0;

  constructor(policy: ModelPolicy) {
    this.policy = policy;
  }

  get #limit(): bigint {
    return BigInt(this.policy.limit);
  }
  get #cycle(): number {
    return this.policy.per + this.policy.late;
  }
  get #tau(): number {
    return Math.floor(((this.policy.burst - 1) * this.#cycle) / this.policy.limit);
  }
  /** In 1/limit of a µs. */
  get #arrival(): bigint {
    return max(this.#state.tat, BigInt(this.#pausedUntil + this.#tau) * this.#limit);
  }

  next(now: number): number {
    const { rules, late } = this.policy;
    const starts = this.standing.map(({ slot }) => slot).toSorted((a, b) => b - a);
    const windows = rules.map((rule) => (starts[rule.limit - 1] ?? -Infinity) + rule.per + late);
    const even = Number(this.#arrival / this.#limit) - this.#tau;
    return Math.max(now, this.#pausedUntil, even, this.#state.last, ...windows);
  }

  reserve(now: number, id: string): number {
    const slot = this.next(now);
    this.#undo = { id, state: this.#state };
    const tat = max(this.#arrival, BigInt(slot) * this.#limit) + BigInt(this.#cycle);
    this.#state = { tat, last: slot };
    this.standing.push({ id, slot, reservedAt: now });
    return slot;
  }

  giveBack(id: string): void {
    this.standing = this.standing.filter((held) => held.id !== id);
    if (this.#undo?.id !== id) return;
    this.#state = this.#undo.state;
    this.#undo = undefined;
  }

  pause(now: number, duration: number): void {
    this.#pausedUntil = Math.max(this.#pausedUntil, now + duration);
  }

  resume(now: number): void {
    if (this.#pausedUntil <= now) return;
    this.#pausedUntil = now;
    const near = now + NEAR;
    const { tat, last } = this.#state;
    if (last <= near) return;
    this.standing = this.standing.filter(({ slot, reservedAt }) => slot <= near || slot - reservedAt <= FAR);
    const debt = tat / this.#limit - BigInt(last);
    this.#state = { tat: (BigInt(near) + debt) * this.#limit, last: near };
    this.#undo = undefined;
  }
}

const max = (a: bigint, b: bigint): bigint => (a > b ? a : b);
