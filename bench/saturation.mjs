// @ts-check
// Saturation: a rate far above what the machine can do.
import { run } from "./run.mjs";
import { median } from "./series.mjs";
import { bare, exact, spillway, UNLIMITED } from "./subjects/index.mjs";
import { table } from "./table.mjs";

const MOST_PER_SECOND = 10_000;

export const title = "Saturation: calls a second, nothing to wait for";

/** @param {import("./run.mjs").Bench} bench */
export async function measure(bench) {
  const rounds = bench.quick ? 1 : 3;
  const seconds = 2;
  const rows = [];
  for (const processes of [1, 4]) {
    const subjects = [spillway, exact, ...bench.against, bare];
    /** @type {Map<string, import("./run.mjs").Run[]>} */
    const runs = new Map();
    for (let round = 1; round <= rounds; round++) {
      for (const subject of subjects) {
        bench.say(`${subject.name}, ${processes} processes, round ${round}`);
        const plan = { subject, rate: UNLIMITED, processes, seconds, warm: 1, calls: MOST_PER_SECOND * 4 };
        runs.set(subject.name, [...(runs.get(subject.name) ?? []), await run(bench, plan)]);
      }
    }
    const rate = (/** @type {string} */ name) => median((runs.get(name) ?? []).map(({ achieved }) => achieved));
    for (const { name } of subjects) {
      const all = runs.get(name) ?? [];
      const middle = (/** @type {(run: import("./run.mjs").Run) => number | undefined} */ pick) =>
        median(all.map((one) => pick(one) ?? Number.NaN));
      rows.push({
        subject: name,
        processes,
        achieved: rate(name),
        ratio: rate(name) / rate(bare.name),
        scripts: middle((one) => one.scripts),
        commands: middle((one) => one.commands),
        redisMicros: middle((one) => one.redisMicros),
        workerMicros: middle((one) => one.workerMicros),
      });
    }
  }
  const head = ["", "processes", "calls/s", "ratio", "scripts", "commands", "Redis µs", "worker µs"];
  /** @type {import("./main.mjs").Goal[]} */
  const goals = rows
    .filter(({ subject }) => subject === spillway.name)
    .map((row) => ({ what: `of a bare BullMQ worker, ${row.processes} p`, value: row.ratio, atLeast: 0.85 }));
  const note = `ratio: to the bare BullMQ worker. Medians of ${rounds} rounds, taken in turn. Costs are per call.`;
  return {
    rows,
    text: `${table(
      head,
      rows.map((row) => Object.values(row)),
    )}\n\n${note}`,
    goals,
  };
}
