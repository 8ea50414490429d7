// @ts-check
// Enqueue: how fast calls are stored, against plain BullMQ.
import { start } from "./processes.mjs";
import { median } from "./series.mjs";
import { bare, spillway } from "./subjects/index.mjs";
import { table } from "./table.mjs";

/** @typedef {import("./run.mjs").Bench} Bench */
/** @typedef {import("./subjects/index.mjs").Subject} Subject */

const BULK = 100;
const CASES = [
  { what: "one at a time", producers: 1, lanes: 1, bulk: 0 },
  { what: "16 at a time", producers: 1, lanes: 16, bulk: 0 },
  { what: "4 at a time each", producers: 8, lanes: 4, bulk: 0 },
  { what: `in bulks of ${BULK}`, producers: 1, lanes: 2, bulk: BULK },
  { what: `in bulks of ${BULK}`, producers: 8, lanes: 2, bulk: BULK },
];

export const title = "Enqueue: calls stored a second";

/** @param {Bench} bench */
export async function measure(bench) {
  const rounds = bench.quick ? 1 : 5;
  const subjects = [spillway, ...bench.against, bare];
  const rows = [];
  for (const one of CASES) {
    bench.say(`${one.producers} producers, ${one.what}`);
    /** @type {Map<Subject, { rate: number, scripts: number, commands: number, redisMicros: number }[]>} */
    const found = new Map(subjects.map((subject) => [subject, []]));
    for (let round = 0; round < rounds; round++) {
      for (const subject of subjects) found.get(subject)?.push(await produce(bench, subject, one));
    }
    const middle = (
      /** @type {Subject} */ subject,
      /** @type {"rate" | "scripts" | "commands" | "redisMicros"} */ key,
    ) => median((found.get(subject) ?? []).map((result) => result[key]));
    for (const subject of subjects) {
      rows.push({
        subject: subject.name,
        producers: one.producers,
        what: one.what,
        rate: Math.round(middle(subject, "rate")),
        ratio: middle(subject, "rate") / middle(bare, "rate"),
        scripts: middle(subject, "scripts"),
        commands: middle(subject, "commands"),
        redisMicros: middle(subject, "redisMicros"),
      });
    }
  }
  const head = ["", "producers", "", "calls/s", "ratio", "scripts", "commands", "Redis µs"];
  /** @type {import("./main.mjs").Goal[]} */
  const goals = rows
    .filter(({ subject }) => subject === spillway.name)
    .map(({ producers, what, ratio }) => ({
      what: `of plain BullMQ, ${producers} producers, ${what}`,
      value: ratio,
      atLeast: what.includes("bulk") ? 1.3 : producers > 1 ? 0.9 : 0.95,
    }));
  const note = `ratio: to plain \`add\` and \`addBulk\`. Medians of ${rounds} rounds, taken in turn.`;
  return {
    rows,
    text: `${table(
      head,
      rows.map((row) => Object.values(row)),
    )}\n\n${note}`,
    goals,
  };
}

/** @param {Bench} bench @param {Subject} subject @param {typeof CASES[number]} one */
async function produce({ redis, host, quick }, subject, { producers, lanes, bulk }) {
  await redis.clear();
  const setting = { redis: redis.url, host, rate: 1, paused: true, subject };
  const children = await Promise.all(Array.from({ length: producers }, () => start("child.mjs", setting)));
  try {
    await Promise.all(children.map((child) => child.ask("open")));
    const work = (/** @type {number} */ milliseconds) =>
      Promise.all(children.map((child) => child.ask("produce", { milliseconds, lanes, bulk })));
    await work(400);
    const before = await redis.usage();
    const results = await work(quick ? 500 : 1000);
    const after = await redis.usage();
    const added = results.reduce((sum, result) => sum + Number(result.added), 0);
    return {
      rate: results.reduce((sum, result) => sum + (Number(result.added) / Number(result.milliseconds)) * 1000, 0),
      scripts: (after.scripts - before.scripts) / added,
      commands: (after.commands - before.commands) / added,
      redisMicros: ((after.cpuMs - before.cpuMs) * 1000) / added,
    };
  } finally {
    await Promise.all(children.map((child) => child.stop()));
  }
}
