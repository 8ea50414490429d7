// @ts-check
// The picture of a run, as SVG: what was offered, what waited, what was sent, and by whom, above one time axis.
import {
  area,
  bar,
  bound,
  frame,
  heading,
  LEFT,
  legend,
  page,
  px,
  RIGHT,
  scale,
  timeAxis,
  WIDTH,
} from "../../dist/chart/svg.js";
import { mostInOneSecond } from "./report.mjs";
import { CAPACITY, RATE } from "./setting.mjs";

/** @typedef {import("./report.mjs").Recording} Recording */
/** @typedef {import("../../dist/chart/svg.js").Panel} Panel */

const HEIGHT = 772;
const BIN_MS = 200;
const STEP_MS = 50;

const STYLE = `
  .start { stroke: #1a7f5a; stroke-width: 1.2; }
  @media (prefers-color-scheme: dark) {
    .start { stroke: #3fb984; }
  }`;

export function drawChart(/** @type {Recording} */ recording) {
  const { startedAt, offers, arrivals, depths } = recording;
  const ends = [offers, arrivals, depths].map((list) => list.at(-1)?.at ?? startedAt);
  const seconds = Math.max(1, Math.ceil((Math.max(...ends) - startedAt) / 500) / 2);
  const x = (/** @type {number} */ at) => LEFT + ((at - startedAt) / 1000 / seconds) * (WIDTH - LEFT - RIGHT);

  const bins = binned(recording);
  const peak = Math.max(RATE, ...bins.map(({ accepted, dropped }) => accepted + dropped));
  const offered = { top: 88, height: 150, ...scale(peak * 1.03), title: "Offered", unit: "calls a second" };
  const waiting = { top: 294, height: 100, ...scale(CAPACITY * 1.1), title: "Waiting", unit: "calls" };
  const sent = { top: 450, height: 80, ...scale(RATE * 1.2), title: "Sent", unit: "starts in the second before" };
  const starts = { top: 586, height: 125, title: "Sent by", unit: "one stroke is one request, as the upstream saw it" };
  const most = mostInOneSecond(arrivals.map(({ at }) => at));

  const body = [
    legend(LEGEND, WIDTH - RIGHT - 290),
    frame(offered),
    ...bins.map((bin) => drawBin(offered, bin, x)),
    bound(offered, RATE, `limit ${RATE}/s`),
    frame(waiting),
    area(
      "depth",
      waiting,
      depths.map(({ at, depth }) => ({ at, value: depth })),
      x,
    ),
    bound(waiting, CAPACITY, `capacity ${CAPACITY}`),
    frame(sent),
    area("rate", sent, lastSecond(recording, startedAt + seconds * 1000), x),
    bound(sent, RATE, `limit ${RATE}/s`),
    drawStarts(starts, recording, x),
    timeAxis(
      starts.top + starts.height,
      Array.from({ length: Math.floor(seconds) + 1 }, (_, second) => startedAt + second * 1000),
      x,
      (at) => (at - startedAt) / 1000,
      "time (seconds)",
    ),
  ];
  return page({
    title: `Offered in waves, sent evenly by four processes: at most ${most} in any second`,
    description: describe(recording),
    height: HEIGHT,
    style: STYLE,
    body: body.join("\n"),
  });
}

const LEGEND = [
  { name: "accepted", text: "accepted", width: 100 },
  { name: "dropped", text: "dropped: the queue was full", width: 0 },
];

function describe(/** @type {Recording} */ { offers, arrivals }) {
  const dropped = offers.filter(({ state }) => state === "dropped").length;
  const most = mostInOneSecond(arrivals.map(({ at }) => at));
  return `${offers.length} calls were offered, ${dropped} of them dropped; ${arrivals.length} were sent, at most ${most} in any second.`;
}

function binned(/** @type {Recording} */ { startedAt, offers }) {
  /** @type {{ at: number, accepted: number, dropped: number }[]} */
  const bins = [];
  for (const { at, state } of offers) {
    const index = Math.floor((at - startedAt) / BIN_MS);
    const bin = (bins[index] ??= { at: startedAt + index * BIN_MS, accepted: 0, dropped: 0 });
    bin[state === "dropped" ? "dropped" : "accepted"] += 1000 / BIN_MS;
  }
  return bins.filter((bin) => bin !== undefined);
}

/**
 * @param {Panel} panel
 * @param {{ at: number, accepted: number, dropped: number }} bin
 * @param {(at: number) => number} x
 */
function drawBin(panel, { at, accepted, dropped }, x) {
  /** @type {[number, number]} */
  const sides = [x(at) + 0.75, x(at + BIN_MS) - 0.75];
  const total = accepted + dropped;
  return bar("accepted", panel, sides, [0, accepted]) + bar("dropped", panel, sides, [accepted, total]);
}

/** How many starts the upstream saw in the second before, at even steps. */
function lastSecond(/** @type {Recording} */ { startedAt, arrivals }, /** @type {number} */ end) {
  const values = [];
  for (let at = startedAt; at <= end; at += STEP_MS) {
    values.push({ at, value: arrivals.filter((one) => one.at > at - 1000 && one.at <= at).length });
  }
  return values;
}

/**
 * One lane for all starts and one for each process.
 *
 * @param {{ top: number, height: number, title: string, unit: string }} panel
 * @param {Recording} recording
 * @param {(at: number) => number} x
 */
function drawStarts(panel, { arrivals }, x) {
  const senders = [...new Set(arrivals.map(({ by }) => by))].sort((a, b) => (a < b ? -1 : 1));
  const names = ["all", ...senders];
  const lane = panel.height / names.length;
  const lanes = names.map((name, index) => {
    const top = panel.top + index * lane;
    const mine = arrivals.filter(({ by }) => name === "all" || by === name);
    const strokes = mine.map(({ at }) => `M${px(x(at))} ${px(top + 3)}v${px(lane - 6)}`);
    return (
      `<text x="${LEFT - 8}" y="${px(top + lane / 2)}" dy="0.35em" text-anchor="end">${name}</text>\n` +
      `<path class="start" d="${strokes.join("")}"/>`
    );
  });
  return [heading(panel), ...lanes].join("\n");
}
