/** What happened over time, in equal steps. */
export interface Timeline {
  /** Begin of the first step, in ms on the clock of the arrivals. */
  readonly from: number;
  /** Length of each step, in ms. */
  readonly step: number;
  /** Calls that came in each step. */
  readonly offered: readonly number[];
  /** Calls that started in it. */
  readonly sent: readonly number[];
  /** Calls that were refused or dropped in it. */
  readonly refused: readonly number[];
  /** How many waited, on average over the step. */
  readonly waiting: readonly number[];
}

const MOST_STEPS = 512;
const FIRST_STEP_MICROS = 1000;

/**
 * Counts in steps whose length doubles whenever there are too many, so that neither the span need be known nor what
 * happens be told in order.
 */
export class TimelineBuilder {
  #step = FIRST_STEP_MICROS;
  #origin: number | undefined;
  #offered: number[] = [];
  #sent: number[] = [];
  #refused: number[] = [];
  /** Calls times µs, for the steps in which a wait begins or ends. */
  #waited: number[] = [];
  /** By how many more (or fewer) waits each step is covered entirely than the one before. */
  #covers: number[] = [];

  offered(at: number): void {
    this.#origin ??= at;
    this.#add("offered", at);
  }

  sent(from: number, at: number): void {
    this.#add("sent", at);
    this.#wait(from, at);
  }

  refused(from: number, at: number): void {
    this.#add("refused", at);
    this.#wait(from, at);
  }

  #add(what: "offered" | "sent" | "refused", at: number): void {
    const index = this.#index(at);
    const counts = what === "offered" ? this.#offered : what === "sent" ? this.#sent : this.#refused;
    counts[index] = (counts[index] ?? 0) + 1;
  }

  #index(at: number): number {
    const elapsed = at - (this.#origin ?? at);
    while (elapsed / this.#step >= MOST_STEPS) this.#coarsen();
    return Math.floor(elapsed / this.#step);
  }

  #wait(from: number, to: number): void {
    if (to <= from) return;
    const [last, first] = [this.#index(to), this.#index(from)];
    const edge = (index: number): number => (this.#origin ?? 0) + index * this.#step;
    const more = (list: number[], index: number, by: number): void => void (list[index] = (list[index] ?? 0) + by);
    if (first === last) return more(this.#waited, first, to - from);
    more(this.#waited, first, edge(first + 1) - from);
    more(this.#waited, last, to - edge(last));
    more(this.#covers, first + 1, 1);
    more(this.#covers, last, -1);
  }

  #coarsen(): void {
    this.#waited = paired(this.#waiting());
    this.#covers = [];
    this.#offered = paired(this.#offered);
    this.#sent = paired(this.#sent);
    this.#refused = paired(this.#refused);
    this.#step *= 2;
  }

  /** Calls times µs of each step. */
  #waiting(): number[] {
    let covering = 0;
    return Array.from({ length: Math.max(this.#waited.length, this.#covers.length) }, (_, index) => {
      covering += this.#covers[index] ?? 0;
      return (this.#waited[index] ?? 0) + covering * this.#step;
    });
  }

  build(given: (micros: number) => number): Timeline {
    const waiting = this.#waiting();
    const length = Math.max(this.#offered.length, this.#sent.length, this.#refused.length, waiting.length);
    const filled = (list: readonly number[]): number[] => Array.from({ length }, (_, index) => list[index] ?? 0);
    return {
      from: this.#origin === undefined ? 0 : given(this.#origin),
      step: this.#step / 1000,
      offered: filled(this.#offered),
      sent: filled(this.#sent),
      refused: filled(this.#refused),
      waiting: filled(waiting).map((area) => area / this.#step),
    };
  }
}

function paired(list: readonly number[]): number[] {
  const at = (index: number): number => list[index] ?? 0;
  return Array.from({ length: Math.ceil(list.length / 2) }, (_, index) => at(2 * index) + at(2 * index + 1));
}
