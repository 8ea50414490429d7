// @ts-check
// Leak: how evenly calls leave, at what cost.
import { run } from "./run.mjs";
import { bottleneck, exact, flexible, pQueue, pThrottle, spaced, spillway, windowed } from "./subjects/index.mjs";
import { table } from "./table.mjs";

/** @typedef {import("./run.mjs").Run} Run */
/** @typedef {import("./main.mjs").Goal} Goal */

const RATES = [10, 100, 1000, 2500];
const PEERS = [spaced, windowed, bottleneck, flexible, pThrottle, pQueue];

export const title = "Leak: as the server sees it";

/** @param {import("./run.mjs").Bench} bench */
export async function measure(bench) {
  /** @type {Run[]} */
  const rows = [];
  for (const rate of bench.quick ? [100, 1000] : RATES) {
    for (const processes of [1, 4]) {
      for (const subject of [spillway, exact, ...bench.against, ...(bench.quick ? [bottleneck] : PEERS)]) {
        if (processes > 1 && !subject.clustered) continue;
        // BullMQ's windows are whole milliseconds.
        if (subject === spaced && rate > 1000) continue;
        bench.say(`${subject.name}, ${rate}/s, ${processes} processes`);
        rows.push(await run(bench, { subject, rate, processes, seconds: bench.quick ? 2 : 3 }));
      }
    }
  }
  return { rows, text: print(rows), goals: goalsOf(rows) };
}

const HEAD = ["", "ratio", "achieved", "gap p50", "p99", "max ms", "in 10 ms", "100 ms", "1 s"];
const COSTS = ["scripts", "commands", "Redis µs", "worker µs", "displaced", "most"];

/** @param {Run[]} rows */
function print(rows) {
  const parts = [];
  for (const rate of new Set(rows.map((row) => row.rate))) {
    for (const processes of [1, 4]) {
      const group = rows.filter((row) => row.rate === rate && row.processes === processes);
      const lines = group.map((row) => [
        row.subject,
        row.achieved / rate,
        row.achieved,
        row.p50,
        row.p99,
        row.max,
        row.in10,
        row.in100,
        row.in1000,
        row.scripts,
        row.commands,
        row.redisMicros,
        row.workerMicros,
        row.average,
        row.most,
      ]);
      parts.push(`${rate}/s, ${processes === 1 ? "1 process" : `${processes} processes`}\n`);
      parts.push(`${table([...HEAD, ...COSTS], lines)}\n`);
    }
  }
  parts.push("ratio: achieved / nominal. in 10 ms, 100 ms, 1 s: most starts in any such window. Costs are per call.");
  return parts.join("\n");
}

/** @param {Run[]} rows @returns {Goal[]} */
function goalsOf(rows) {
  /** @type {Goal[]} */
  const goals = [];
  const find = (/** @type {string} */ name, /** @type {number} */ rate, /** @type {number} */ processes) =>
    rows.find((row) => row.subject === name && row.rate === rate && row.processes === processes);
  for (const row of rows.filter((one) => one.subject === spillway.name)) {
    const where = `${row.rate}/s, ${row.processes} p`;
    goals.push({ what: `at most N starts in any second, ${where}`, value: row.in1000, atMost: row.rate });
    goals.push({ what: `average of nominal, ${where}`, value: row.achieved / row.rate, atLeast: 0.985 });
    const bound = row.rate === 100 ? [0.05, 4] : row.rate === 1000 ? [0.5, 30] : undefined;
    if (row.processes === 4 && bound !== undefined) {
      goals.push({ what: `average displacement, ${where}`, value: row.average ?? 0, atMost: bound[0] });
      goals.push({ what: `most displacement, ${where}`, value: row.most ?? 0, atMost: bound[1] });
    }
    if (row.rate >= 100) {
      goals.push({ what: `scripts a call, ${where}`, value: row.scripts ?? 0, atMost: 3 });
      goals.push({ what: `commands a call, ${where}`, value: row.commands ?? 0, atMost: 30 });
    }
    if (row.rate !== 1000) continue;
    const peer = find(bottleneck.name, row.rate, row.processes);
    if (peer) goals.push({ what: `gap p99 ms, bottleneck's, ${where}`, value: row.p99, atMost: peer.p99 });
    const local = find(pThrottle.name, row.rate, row.processes);
    if (local)
      goals.push({ what: `gap p99 ms, p-throttle's + 1.5, ${where}`, value: row.p99, atMost: local.p99 + 1.5 });
  }
  for (const row of rows.filter((one) => one.subject === exact.name)) {
    const what = `average of nominal, lateness 0, ${row.rate}/s, ${row.processes} p`;
    goals.push({ what, value: row.achieved / row.rate, atLeast: 0.999 });
  }
  return goals;
}
