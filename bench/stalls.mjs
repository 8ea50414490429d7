// @ts-check
// Stalls: what a busy event loop does to the leak.
import { run } from "./run.mjs";
import { bottleneck, exact, flexible, pQueue, pThrottle, spaced, spillway, windowed } from "./subjects/index.mjs";
import { table } from "./table.mjs";

const RATE = 1000;
const PEERS = [spaced, windowed, bottleneck, flexible, pThrottle, pQueue];

export const title = `Stalls: each event loop blocked for 200 ms in every second, at ${RATE}/s`;

/** @param {import("./run.mjs").Bench} bench */
export async function measure(bench) {
  /** @type {import("./run.mjs").Run[]} */
  const rows = [];
  for (const processes of [1, 4]) {
    for (const subject of [spillway, exact, ...bench.against, ...(bench.quick ? [bottleneck] : PEERS)]) {
      if (processes > 1 && !subject.clustered) continue;
      bench.say(`${subject.name}, ${processes} processes`);
      rows.push(await run(bench, { subject, rate: RATE, processes, seconds: bench.quick ? 2 : 4, blockMs: 200 }));
    }
  }
  const lines = rows.map((row) => {
    const { subject, processes, achieved, in10, in100, in1000 } = row;
    return [subject, processes, achieved, achieved / RATE, in10, in100, in1000, in1000 / RATE];
  });
  const head = ["", "processes", "achieved", "of nominal", "in 10 ms", "in 100 ms", "in 1 s", "of nominal"];
  /** @type {import("./main.mjs").Goal[]} */
  const goals = rows
    .filter(({ subject }) => subject === spillway.name)
    .map((row) => ({ what: `at most N starts in any second, ${row.processes} p`, value: row.in1000, atMost: RATE }));
  return { rows, text: table(head, lines), goals };
}
