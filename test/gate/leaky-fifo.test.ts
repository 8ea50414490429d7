import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { bucketOf, MS } from "../helpers/scripts.js";

interface Sequence {
  readonly name: string;
  readonly params: {
    readonly mode: string;
    readonly capacity: number;
    readonly count: number;
    readonly periodMs: number;
  };
  readonly steps: readonly {
    readonly atMs: number;
    /** Of an arrival; else how many wait. */
    readonly expect:
      | { readonly accepted: boolean; readonly departAtMs?: number; readonly queueLengthAfter: number }
      | number;
  }[];
}

// The definition of the paced FIFO. (In mode "tick", departures stand on a grid; a queue of capacity 0 there is none.)
const file = join(import.meta.dirname, "..", "limiters", "vectors", "leaky-fifo.json");
const sequences = (JSON.parse(readFileSync(file, "utf8")) as Sequence[]).filter(
  ({ params: { mode, capacity } }) => mode === "paced" && capacity > 0,
);

test.each(sequences.map((sequence) => [sequence.name, sequence] as const))("%s", async (_name, { params, steps }) => {
  const { capacity, count, periodMs } = params;
  const bucket = await bucketOf({ rate: { limit: count, per: periodMs }, lateness: 0, capacity });
  for (const [i, { atMs, expect: expected }] of steps.entries()) {
    const now = atMs * MS;
    if (typeof expected === "number") {
      expect(await bucket.depth(now)).toBe(expected);
      continue;
    }
    // However far ahead the slot lies, it is told at once.
    const admitted = await bucket.admit({ now, ids: [`c${i}`], kind: "permit", client: "c", horizon: 1e15 });
    expect(admitted.state).toBe(expected.accepted ? "GRANTED" : "FULL");
    if (admitted.state === "GRANTED") {
      expect(Math.abs(admitted.slot / MS - (expected.departAtMs ?? 0))).toBeLessThan(0.0011);
    }
    expect(await bucket.depth(now)).toBe(expected.queueLengthAfter);
  }
});
