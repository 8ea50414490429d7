import type { SpillwayErrorCode } from "../errors.js";
import type { Limit } from "../limits/options.js";

/** What became of the calls. */
export interface SimulationSummary {
  /** Calls that came. */
  readonly offered: number;
  /** Calls that started. */
  readonly sent: number;
  /** Calls that did not, by the code of their error. */
  readonly refused: Readonly<Partial<Record<SpillwayErrorCode, number>>>;
  /** For how long those that were sent had waited, in ms; all 0 when none was. */
  readonly wait: { readonly p50: number; readonly p95: number; readonly p99: number; readonly max: number };
  /** The most that waited in one bucket at once. */
  readonly mostWaiting: number;
}

/** What became of the calls of one limit. */
export interface LimitSummary extends SimulationSummary {
  /** Its buckets that had calls. */
  readonly buckets: number;
  /** Its rate: so many starts (or so much cost, where the rate counts that) in so many ms. */
  readonly rate: { readonly limit: number; readonly perMs: number };
  /** The most of one bucket in any window of that length. */
  readonly mostInPeriod: number;
}

/** Counts how the calls of one bucket start. */
export class BucketTally {
  waiting = 0;
  mostWaiting = 0;
  mostInPeriod = 0;
  readonly #period: number;
  readonly #starts: { at: number; weight: number }[] = [];
  #first = 0;
  #inPeriod = 0;

  constructor({ rate }: Limit) {
    this.#period = rate.perMs * 1000;
  }

  waits(by: 1 | -1): void {
    this.waiting += by;
    this.mostWaiting = Math.max(this.mostWaiting, this.waiting);
  }

  /** @param at in µs, not before the last one. */
  starts(at: number, weight: number): void {
    const starts = this.#starts;
    starts.push({ at, weight });
    this.#inPeriod += weight;
    for (let oldest = starts[this.#first]; oldest && oldest.at <= at - this.#period; oldest = starts[this.#first]) {
      this.#inPeriod -= oldest.weight;
      this.#first++;
    }
    this.mostInPeriod = Math.max(this.mostInPeriod, this.#inPeriod);
    if (this.#first < 1000 || this.#first < starts.length / 2) return;
    starts.splice(0, this.#first);
    this.#first = 0;
  }
}

/** Counts what becomes of calls: of one limit, or of those that have none. */
export class Tally {
  offered = 0;
  readonly buckets: BucketTally[] = [];
  readonly #refused = new Map<SpillwayErrorCode, number>();
  #waits = new Float64Array(64);
  #sent = 0;

  sent(waited: number): void {
    if (this.#sent === this.#waits.length) {
      const longer = new Float64Array(2 * this.#sent);
      longer.set(this.#waits);
      this.#waits = longer;
    }
    this.#waits[this.#sent++] = waited;
  }

  refused(code: SpillwayErrorCode): void {
    this.#refused.set(code, (this.#refused.get(code) ?? 0) + 1);
  }

  of(limit: Limit): LimitSummary {
    const mostInPeriod = this.buckets.reduce((most, bucket) => Math.max(most, bucket.mostInPeriod), 0);
    const rate = { limit: limit.rate.limit, perMs: limit.rate.perMs };
    return { ...Tally.all([this]), buckets: this.buckets.length, rate, mostInPeriod };
  }

  static all(tallies: readonly Tally[]): SimulationSummary {
    const refused: Partial<Record<SpillwayErrorCode, number>> = {};
    let [offered, sent, mostWaiting] = [0, 0, 0];
    for (const tally of tallies) {
      offered += tally.offered;
      sent += tally.#sent;
      for (const [code, times] of tally.#refused) refused[code] = (refused[code] ?? 0) + times;
      for (const bucket of tally.buckets) mostWaiting = Math.max(mostWaiting, bucket.mostWaiting);
    }
    const waits = new Float64Array(sent);
    let at = 0;
    for (const tally of tallies) {
      waits.set(tally.#waits.subarray(0, tally.#sent), at);
      at += tally.#sent;
    }
    return { offered, sent, refused, wait: percentiles(waits.sort()), mostWaiting };
  }
}

/** Nearest rank. */
function percentiles(sorted: Float64Array): SimulationSummary["wait"] {
  const at = (share: number): number => sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? 0;
  return { p50: at(0.5), p95: at(0.95), p99: at(0.99), max: at(1) };
}
