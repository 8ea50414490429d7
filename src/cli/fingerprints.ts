import { createHash } from "node:crypto";

/**
 * A set of texts, of which it keeps 64 bits each: 16 to 32 bytes a text, where a Set of strings takes 100 and more. Two of
 * a million texts are taken for the same with a probability of 3 in 100 million.
 */
export class Fingerprints {
  /** Open addressing; an entry is two words, and 0 0 is free. */
  #table = new Uint32Array(2 * 1024);
  #size = 0;

  has(text: string): boolean {
    const [high, low] = fingerprint(text);
    return this.#table[this.#find(this.#table, high, low)] === high;
  }

  /** False when it was there already. */
  add(text: string): boolean {
    const [high, low] = fingerprint(text);
    const at = this.#find(this.#table, high, low);
    if (this.#table[at] === high) return false;
    this.#table[at] = high;
    this.#table[at + 1] = low;
    if (++this.#size > this.#table.length / 4) this.#grow();
    return true;
  }

  /** Where this entry is, or would be. */
  #find(table: Uint32Array, high: number, low: number): number {
    const mask = table.length - 1;
    let at = (low * 2) & mask;
    while (table[at] !== 0 && (table[at] !== high || table[at + 1] !== low)) at = (at + 2) & mask;
    return at;
  }

  #grow(): void {
    const larger = new Uint32Array(this.#table.length * 2);
    for (let i = 0; i < this.#table.length; i += 2) {
      const [high = 0, low = 0] = this.#table.subarray(i, i + 2);
      if (high === 0) continue;
      const at = this.#find(larger, high, low);
      larger[at] = high;
      larger[at + 1] = low;
    }
    this.#table = larger;
  }
}

function fingerprint(text: string): [high: number, low: number] {
  const digest = createHash("sha1").update(text).digest();
  // Not 0, which marks a free place.
  return [digest.readUInt32LE(0) || 1, digest.readUInt32LE(4)];
}
