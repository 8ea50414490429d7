import type { LimitSummary, Simulation, SimulationSummary } from "../index.js";
import { count, duration } from "./progress.js";

type Row = readonly [string, (summary: SimulationSummary & Partial<LimitSummary>) => string];

/** A table of what became of the calls: a column for each policy, and a part for each limit where there are several. */
export function report(simulations: Readonly<Record<string, Simulation>>): string {
  const all = Object.values(simulations);
  const names = [...new Set(all.flatMap(({ limits }) => Object.keys(limits)))];
  const parts = names.map((name) => ({ title: name, summaries: all.map(({ limits }) => limits[name]) }));
  const [only] = parts;
  const isAll = parts.length === 1 && all.every(({ total }, i) => total.offered === only?.summaries[i]?.offered);
  const shown = isAll ? parts : [{ title: "all", summaries: all.map(({ total }) => total) }, ...parts];
  const lines = shown.map(({ title, summaries }) => table(title, summaries));
  const ends = cells(
    "last start or refusal after",
    all.map(({ span }) => wait(span)),
  );
  return `${layout([cells("", Object.keys(simulations)), ...lines.flat(), cells("", []), ends])}\n`;
}

type Line = readonly string[];

const cells = (label: string, values: readonly string[]): Line => [label, ...values];

function table(title: string, summaries: readonly ((SimulationSummary & Partial<LimitSummary>) | undefined)[]): Line[] {
  const codes = [...new Set(summaries.flatMap((summary) => Object.keys(summary?.refused ?? {})))].sort();
  const most = ({ mostInPeriod, rate }: Partial<LimitSummary>): string =>
    rate === undefined ? "" : `${count(mostInPeriod ?? 0)} of ${count(rate.limit)}`;
  const per = summaries.flatMap((summary) => summary?.rate?.perMs ?? []);
  const sameNames = new Set(per).size === 1 ? `most in ${wait(per[0] ?? 0)}` : "most in the period of the rate";
  const rows: Row[] = [
    ["offered", ({ offered }) => count(offered)],
    ["sent", ({ sent }) => count(sent)],
    ...codes.map((code): Row => [
      code,
      ({ refused }) => count(Object.entries(refused).find(([one]) => one === code)?.[1] ?? 0),
    ]),
    ["wait, median", (summary) => wait(summary.wait.p50)],
    ["wait, 95 %", (summary) => wait(summary.wait.p95)],
    ["wait, 99 %", (summary) => wait(summary.wait.p99)],
    ["wait, longest", (summary) => wait(summary.wait.max)],
    ["most waiting", ({ mostWaiting }) => count(mostWaiting)],
    ...(per.length === 0 ? [] : [[sameNames, most] as const]),
  ];
  return [
    cells("", []),
    cells(title, []),
    ...rows.map(([label, value]) =>
      cells(
        `  ${label}`,
        summaries.map((one) => (one === undefined ? "" : value(one))),
      ),
    ),
  ];
}

/** Three digits or two units. */
function wait(ms: number): string {
  if (ms < 1000) return `${Number(ms.toPrecision(3))}ms`;
  return ms < 60_000 ? `${Number((ms / 1000).toPrecision(3))}s` : duration(ms);
}

/** The first column to the left, all others to the right. */
function layout(lines: readonly Line[]): string {
  const widths: number[] = [];
  for (const line of lines) for (const [i, cell] of line.entries()) widths[i] = Math.max(widths[i] ?? 0, cell.length);
  return lines
    .map((line) => line.map((cell, i) => (i === 0 ? cell.padEnd(widths[0] ?? 0) : cell.padStart((widths[i] ?? 0) + 3))))
    .map((line) => line.join("").trimEnd())
    .join("\n");
}
