// @ts-check
// How spillway compares with what one would use instead, on this machine. See README.md.
import { writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { drawCharts } from "./charts.mjs";
import * as enqueue from "./enqueue.mjs";
import * as latency from "./latency.mjs";
import * as leak from "./leak.mjs";
import * as limiters from "./limiters.mjs";
import * as memory from "./memory.mjs";
import { profile, start } from "./processes.mjs";
import { startRedis } from "./redis.mjs";
import * as saturation from "./saturation.mjs";
import * as stalls from "./stalls.mjs";
import { spillway } from "./subjects/index.mjs";
import { show } from "./table.mjs";

/** @typedef {{ what: string, value: number, atLeast?: number | undefined, atMost?: number | undefined }} Goal */
/** @typedef {{ title: string, measure: (bench: import("./run.mjs").Bench) =>
 *   Promise<{ rows: readonly object[], text: string, goals: readonly Goal[] }> }} Measurement */

/** @type {Record<string, Measurement>} */
const measurements = { leak, enqueue, latency, saturation, memory, stalls, limiters };

const HELP = `npm run bench -- [measurement…] [options]

Measurements: ${Object.keys(measurements).join(", ")} (default: all, in about ten minutes)

--quick          fewer rates, peers and rounds: about a minute and a half
--json FILE      write all figures to FILE
--charts FOLDER  draw SVG charts into FOLDER
--profile FOLDER write CPU profiles of the processes under measurement
--against FOLDER measure another build of spillway too (a dist folder): before and after in one run
--list           name the measurements`;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    quick: { type: "boolean", default: false },
    json: { type: "string" },
    charts: { type: "string" },
    profile: { type: "string" },
    against: { type: "string" },
    list: { type: "boolean", default: false },
    help: { type: "boolean", default: false },
  },
});

const unknown = positionals.filter((name) => !(name in measurements));
if (values.help || unknown.length > 0) {
  console.log(unknown.length > 0 ? `Unknown measurement: ${unknown.join(", ")}\n\n${HELP}` : HELP);
  process.exitCode = unknown.length > 0 ? 2 : 0;
} else if (values.list) {
  for (const [name, { title }] of Object.entries(measurements)) console.log(`${name.padEnd(12)}${title}`);
} else {
  await main(positionals.length > 0 ? positionals : Object.keys(measurements));
}

async function main(/** @type {string[]} */ names) {
  const startedAt = performance.now();
  if (values.profile !== undefined) profile.folder = resolve(values.profile);
  const redis = await startRedis();
  const upstream = await start("upstream.mjs", {});
  try {
    const machine = `${cpus().length} cores, Node ${process.versions.node}, Redis: ${redis.description}`;
    console.log(machine);
    const build = values.against === undefined ? undefined : pathToFileURL(resolve(values.against, "index.js")).href;
    const bench = {
      redis,
      upstream,
      host: String(upstream.ready.host),
      quick: values.quick,
      against: build === undefined ? [] : [{ ...spillway, name: "spillway, other build", module: build }],
      say,
    };
    /** @type {Record<string, { rows: readonly object[], goals: readonly Goal[] }>} */
    const results = {};
    for (const name of names) {
      const measurement = measurements[name];
      if (measurement === undefined) continue;
      try {
        const { rows, text, goals } = await measurement.measure(bench);
        say("");
        console.log(`\n## ${measurement.title}\n\n${text}\n${judge(goals)}`);
        results[name] = { rows, goals };
      } catch (error) {
        // The others may still be worth having.
        console.error(`\n## ${measurement.title}\n\nFailed:`, error);
        process.exitCode = 1;
      }
      keep({ machine, quick: values.quick, results });
    }
    console.log(`\n${Math.round((performance.now() - startedAt) / 1000)} s`);
  } finally {
    await upstream.stop();
    await redis.close();
  }
}

/** Writes what is there so far. @param {object} figures */
function keep(figures) {
  const json = JSON.stringify(figures);
  if (values.json !== undefined) writeFileSync(values.json, `${json}\n`);
  if (values.charts !== undefined) drawCharts(JSON.parse(json), values.charts);
}

/** What is being measured, on a line that the next one replaces. @param {string} line */
function say(line) {
  if (process.stderr.isTTY) process.stderr.write(`\r\x1b[2K${line}`);
}

/** @param {readonly Goal[]} goals */
function judge(goals) {
  const missed = goals.filter(
    ({ value, atLeast = -Infinity, atMost = Infinity }) => !(value >= atLeast && value <= atMost),
  );
  if (goals.length === 0) return "";
  const lines = missed.map(({ what, value, atLeast, atMost }) => {
    const bound = atLeast === undefined ? `at most ${show(atMost)}` : `at least ${show(atLeast)}`;
    return `- missed: ${what}: ${show(value)}, goal ${bound}`;
  });
  return ["", `Goals reached: ${goals.length - missed.length} of ${goals.length}`, ...lines].join("\n");
}
