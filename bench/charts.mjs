// @ts-check
// Draws the figures of `main.mjs --json` as SVG: `node bench/charts.mjs results.json docs`. Readable on light and dark.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { page } from "../dist/chart/svg.js";
import { show } from "./table.mjs";

/** @typedef {import("./run.mjs").Run} Run */
/** @typedef {{ leak?: { rows: readonly Run[] }, saturation?: { rows: readonly Rated[] }, enqueue?: { rows: readonly Rated[] },
 *   limiters?: { rows: readonly Limited[] } }} Results */
/** @typedef {{ subject: string, processes?: number, achieved?: number, producers?: number, what?: string, rate?: number }} Rated */

const STYLE = `
  .name { fill: #1f2328; }
  .ours { font-weight: 600; }
  .value { text-anchor: end; font-variant-numeric: tabular-nums; }
  .head { text-anchor: end; }
  text.over { fill: #cf222e; font-weight: 600; }
  .band { fill: #f6f8fa; }
  .start { stroke: #57606a; }
  .start.ours, .bar.ours { stroke: #1a7f5a; fill: #1a7f5a; }
  .bar { fill: #8c959f; }
  @media (prefers-color-scheme: dark) {
    .name { fill: #f0f6fc; }
    text.over { fill: #f85149; }
    .band { fill: #151b23; }
    .start { stroke: #9198a1; }
    .start.ours, .bar.ours { stroke: #3fb984; fill: #3fb984; }
    .bar { fill: #656c76; }
  }`;

const ours = (/** @type {string} */ subject) => (subject.startsWith("spillway") ? " ours" : "");

const STRIP = { left: 222, right: 700, top: 88, row: 40 };
const COLUMNS = [760, 848, 936];

/** @typedef {{ name: string, strip: readonly number[], values: readonly string[], over: boolean }} Strip */

/**
 * One line for each subject, one stroke for each request.
 *
 * @param {{ title: string, description: string, lines: readonly Strip[], heads: readonly string[], shownMs: number, foot: string }} chart
 */
function stripChart({ title, description, lines, heads, shownMs, foot }) {
  const height = STRIP.top + lines.length * STRIP.row + 34;
  const x = (/** @type {number} */ at) => (STRIP.left + (at / shownMs) * (STRIP.right - STRIP.left)).toFixed(1);
  const head = heads.map((text, i) => `<text class="head" x="${COLUMNS[i]}" y="70">${text}</text>`);
  const drawn = lines.map(({ name, strip, values, over }, i) => {
    const top = STRIP.top + i * STRIP.row;
    const base = top + STRIP.row / 2 + 4;
    const strokes = strip.map((at) => `M${x(at)} ${top + 8}v${STRIP.row - 16}`).join("");
    const texts = values.map((value, column) => {
      const mark = column === 1 && over ? " over" : "";
      return `<text class="value${mark}${ours(name)}" x="${COLUMNS[column] ?? 0}" y="${base}">${value}</text>`;
    });
    return `<rect class="band" x="${STRIP.left}" y="${top + 4}" width="${STRIP.right - STRIP.left}" height="${STRIP.row - 8}" rx="3"/>
<text class="name${ours(name)}" x="24" y="${base}">${name}</text>
<path class="start${ours(name)}" d="${strokes}"/>
${texts.join("\n")}`;
  });
  const below = `<text x="${STRIP.left}" y="${height - 14}">${foot}</text>`;
  const requests = `<text x="${STRIP.left}" y="70">requests</text>`;
  return page({ title, description, height, style: STYLE, body: [...head, requests, ...drawn, below].join("\n") });
}

/** @param {readonly Run[]} rows @param {number} rate */
function leakChart(rows, rate) {
  const described = rows.map(
    (row) => `${row.subject}: ${show(row.achieved)} a second, most in one second ${row.in1000}`,
  );
  return stripChart({
    title: `${rate} calls a second, asked of four processes`,
    description: described.join(". "),
    lines: rows.map(({ subject, strip, achieved, in1000, in100 }) => ({
      name: subject,
      strip,
      values: [achieved.toFixed(1), `${in1000}`, `${in100}`],
      over: in1000 > rate,
    })),
    heads: ["a second", "most in 1 s", "in 100 ms"],
    shownMs: 2000,
    foot: "2 seconds; each stroke is one request, as the server saw it",
  });
}

/** @typedef {{ name: string, strip: readonly number[], average: number, most: number, atEdge: number, bytes: number }} Limited */

/** @param {readonly Limited[]} rows */
function limitersChart(rows) {
  return stripChart({
    title: "Five calls a second, and what 100 a minute lets through",
    description: rows.map(({ name, most }) => `${name}: most in any minute ${most}`).join(". "),
    lines: rows.map(({ name, strip, most, atEdge, bytes }) => ({
      name,
      strip,
      values: [`${bytes}`, `${Math.max(most, atEdge)}`, ""],
      over: Math.max(most, atEdge) > 100,
    })),
    heads: ["bytes a key", "most in 1 m", ""],
    shownMs: 180_000,
    foot: "3 minutes; each stroke is one call that is allowed",
  });
}

/** @param {string} title @param {readonly { label: string, subject: string, value: number }[]} bars */
function barChart(title, bars) {
  const top = 60;
  const row = 30;
  const most = Math.max(1, ...bars.map(({ value }) => value));
  const lines = bars.map(({ label, subject, value }, i) => {
    const y = top + i * row;
    const width = (value / most) * 440;
    return `<text class="name${ours(subject)}" x="24" y="${y + 16}">${label}</text>
<rect class="bar${ours(subject)}" x="400" y="${y + 2}" width="${width.toFixed(1)}" height="${row - 10}" rx="2"/>
<text x="${(408 + width).toFixed(1)}" y="${y + 16}">${Math.round(value)}</text>`;
  });
  const description = bars.map(({ label, value }) => `${label}: ${Math.round(value)}`).join(". ");
  return page({ title, description, height: top + bars.length * row + 20, style: STYLE, body: lines.join("\n") });
}

const LEAK_RATE = 100;

/** @param {{ results: Results }} json @param {string} folder */
export function drawCharts({ results }, folder) {
  mkdirSync(folder, { recursive: true });
  const leak = results.leak?.rows.filter((row) => row.rate === LEAK_RATE && row.processes === 4) ?? [];
  if (leak.length > 0) writeFileSync(join(folder, "bench-leak.svg"), leakChart(leak, LEAK_RATE));
  if (results.limiters !== undefined) {
    writeFileSync(join(folder, "limiters.svg"), limitersChart(results.limiters.rows));
  }
  const saturation = results.saturation?.rows.map(({ subject, processes = 1, achieved = 0 }) => ({
    subject,
    label: `${subject}, ${processes === 1 ? "1 worker" : `${processes} workers`}`,
    value: achieved,
  }));
  if (saturation !== undefined) {
    writeFileSync(join(folder, "bench-saturation.svg"), barChart("Calls a second when there is no limit", saturation));
  }
  const enqueue = results.enqueue?.rows.map(({ subject, producers = 1, what = "", rate = 0 }) => ({
    subject,
    label: `${subject}, ${producers === 1 ? "1 producer" : `${producers} producers`}, ${what}`,
    value: rate,
  }));
  if (enqueue !== undefined) {
    writeFileSync(join(folder, "bench-enqueue.svg"), barChart("Calls stored a second", enqueue));
  }
}

if (process.argv[1] === import.meta.filename) {
  const [file = "", folder = "."] = process.argv.slice(2);
  /** @type {{ results: Results }} */
  const json = JSON.parse(readFileSync(file, "utf8"));
  drawCharts(json, folder);
}
