import { count } from "./progress.js";

const MOST_REASONS = 20;

/** Counts how calls end. */
export class Tally {
  /** Ended in this run. */
  ended = 0;
  failed = 0;
  retries = 0;
  /** Dropped when the run was stopped. */
  dropped = 0;
  readonly #reasons = new Map<string, number>();

  /** @param reason why it failed, if it did. */
  end(attempts: number, reason?: string): void {
    this.ended++;
    this.retries += Math.max(0, attempts - 1);
    if (reason === undefined) return;
    this.failed++;
    const known = this.#reasons.get(reason);
    const key = known === undefined && this.#reasons.size >= MOST_REASONS ? "other" : reason;
    this.#reasons.set(key, (this.#reasons.get(key) ?? 0) + 1);
  }

  /** Why calls failed, the most frequent first: `7 × status 500, 2 × ERR_MAYBE_SENT`. */
  reasons(): string {
    const sorted = [...this.#reasons].sort(([, a], [, b]) => b - a);
    return sorted.map(([reason, times]) => `${count(times)} × ${reason}`).join(", ");
  }
}
