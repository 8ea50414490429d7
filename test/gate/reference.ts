/** The gate, written once more and without Redis: GCRA in exact fractions, and a log of every start, never trimmed. */

export interface ModelPolicy {
  readonly limit: number;
  readonly per: number;
  readonly late: number;
  readonly burst: number;
  /** Whether the rate counts cost. */
  readonly weighed?: boolean;
  readonly rules: readonly { readonly limit: number; readonly per: number; readonly weighed?: boolean }[];
}

export interface Held {
  readonly id: string;
  readonly slot: number;
  readonly reservedAt: number;
  readonly cost: number;
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

  #weightOf(cost: number): number {
    return this.policy.weighed === true ? cost : 1;
  }

  /** When all of it fits, or all of the window is empty: one start after the other leaves. */
  #opensAt(rule: ModelPolicy["rules"][number], cost: number): number {
    const weigh = (held: number): number => (rule.weighed === true ? held : 1);
    let within = this.standing.filter((held) => weigh(held.cost) > 0).toSorted((a, b) => a.slot - b.slot);
    let opens = -Infinity;
    const fits = (): boolean =>
      within.length === 0 || within.reduce((sum, held) => sum + weigh(held.cost), weigh(cost)) <= rule.limit;
    while (!fits()) {
      const [oldest, ...others] = within;
      opens = (oldest?.slot ?? 0) + rule.per + this.policy.late;
      within = others;
    }
    return opens;
  }

  next(now: number, cost = 1): number {
    const { rules, burst } = this.policy;
    const windows = rules.map((rule) => this.#opensAt(rule, cost));
    const weight = Math.min(this.#weightOf(cost), burst);
    const excess = Math.ceil(((weight - 1) * this.#cycle) / this.policy.limit);
    const even = Number(this.#arrival / this.#limit) - this.#tau + excess;
    return Math.max(now, this.#pausedUntil, even, this.#state.last, ...windows);
  }

  reserve(now: number, id: string, cost = 1): number {
    const slot = this.next(now, cost);
    this.#undo = { id, state: this.#state };
    const step = BigInt(this.#cycle) * BigInt(this.#weightOf(cost));
    const tat = max(this.#arrival, BigInt(slot) * this.#limit) + step;
    this.#state = { tat, last: slot };
    this.standing.push({ id, slot, reservedAt: now, cost });
    return slot;
  }

  settle(now: number, id: string, cost: number): void {
    const held = this.standing.find((one) => one.id === id);
    if (held === undefined || held.cost === cost) return;
    this.standing = this.standing.map((one) => (one === held ? { ...held, cost } : one));
    if (this.policy.weighed !== true) return;
    let more = Math.ceil(((cost - held.cost) * this.#cycle) / this.policy.limit);
    if (more < 0) more = Math.min(0, more + Math.max(0, now - held.slot));
    const { tat, last } = this.#state;
    this.#state = { tat: max(BigInt(last) * this.#limit, tat + BigInt(more) * this.#limit), last };
    this.#undo = undefined;
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
