// @ts-check
// The picture of a run, as SVG: what was offered, what waited, what was sent, and by whom, above one time axis.
import { mostInOneSecond } from "./report.mjs";
import { CAPACITY, RATE } from "./setting.mjs";

/** @typedef {import("./report.mjs").Recording} Recording */
/** @typedef {{ top: number, height: number, most: number, step: number, title: string, unit: string }} Panel */

const WIDTH = 960;
const HEIGHT = 772;
const LEFT = 92;
const RIGHT = 28;
const BIN_MS = 200;
const STEP_MS = 50;

const STYLE = `
  text { font: 13px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #57606a; }
  .title { font-size: 18px; font-weight: 600; fill: #1f2328; }
  .panel { font-weight: 600; fill: #1f2328; }
  .paper { fill: #ffffff; stroke: #d0d7de; }
  .grid { stroke: #d8dee4; }
  .axis { stroke: #8c959f; }
  .accepted { fill: #2f81c9; }
  .dropped { fill: #e5793a; }
  .limit { stroke: #cf222e; stroke-width: 1.5; stroke-dasharray: 6 4; fill: none; }
  text.bound { fill: #cf222e; }
  .depth { fill: #8250df; fill-opacity: 0.22; stroke: #8250df; stroke-width: 1.5; stroke-linejoin: round; }
  .rate { fill: #1a7f5a; fill-opacity: 0.2; stroke: #1a7f5a; stroke-width: 1.5; stroke-linejoin: round; }
  .start { stroke: #1a7f5a; stroke-width: 1.2; }
  @media (prefers-color-scheme: dark) {
    text { fill: #9198a1; }
    .title, .panel { fill: #f0f6fc; }
    .paper { fill: #0d1117; stroke: #3d444d; }
    .grid { stroke: #262c36; }
    .axis { stroke: #656c76; }
    .accepted { fill: #4493f8; }
    .dropped { fill: #f0883e; }
    .limit { stroke: #f85149; }
    text.bound { fill: #f85149; }
    .depth { fill: #ab7df8; stroke: #ab7df8; }
    .rate { fill: #3fb984; stroke: #3fb984; }
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

  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-labelledby="title what">
<title id="title">Arrivals, queue depth and departures of one run of the spillway demo</title>
<desc id="what">${describe(recording)}</desc>
<style>${STYLE}
</style>
<rect class="paper" x="0.5" y="0.5" width="${WIDTH - 1}" height="${HEIGHT - 1}" rx="8"/>
<text class="title" x="24" y="36">Offered in waves, sent evenly by four processes: at most ${most} in any second</text>
${legend()}
${frame(offered)}
${bins.map((bin) => drawBin(offered, bin, x)).join("\n")}
${bound(offered, RATE, `limit ${RATE}/s`)}
${frame(waiting)}
${area(
  "depth",
  waiting,
  depths.map(({ at, depth }) => ({ at, value: depth })),
  x,
)}
${bound(waiting, CAPACITY, `capacity ${CAPACITY}`)}
${frame(sent)}
${area("rate", sent, lastSecond(recording, startedAt + seconds * 1000), x)}
${bound(sent, RATE, `limit ${RATE}/s`)}
${drawStarts(starts, recording, x)}
${timeAxis(starts.top + starts.height, seconds, x, startedAt)}
</svg>
`;
}

function describe(/** @type {Recording} */ { offers, arrivals }) {
  const dropped = offers.filter(({ state }) => state === "dropped").length;
  const most = mostInOneSecond(arrivals.map(({ at }) => at));
  return `${offers.length} calls were offered, ${dropped} of them dropped; ${arrivals.length} were sent, at most ${most} in any second.`;
}

/** Rounds an axis up to a multiple of a step that gives three to five lines. */
function scale(/** @type {number} */ most) {
  const step = [10, 20, 25, 50, 100, 200, 250, 500].find((size) => most / size <= 4.5) ?? 1000;
  return { most, step };
}

const y = (/** @type {Panel} */ { top, height, most }, /** @type {number} */ value) =>
  top + height * (1 - value / most);
const px = (/** @type {number} */ value) => String(Math.round(value * 100) / 100);

function frame(/** @type {Panel} */ panel) {
  const lines = [];
  for (let value = 0; value <= panel.most; value += panel.step) {
    const at = px(y(panel, value));
    lines.push(
      `<line class="${value === 0 ? "axis" : "grid"}" x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${at}" y2="${at}"/>`,
      `<text x="${LEFT - 8}" y="${at}" dy="0.35em" text-anchor="end">${value}</text>`,
    );
  }
  return [heading(panel), ...lines].join("\n");
}

const heading = (/** @type {{ top: number, title: string, unit: string }} */ { top, title, unit }) =>
  `<text x="24" y="${top - 16}"><tspan class="panel">${title}</tspan> <tspan>(${unit})</tspan></text>`;

function bound(/** @type {Panel} */ panel, /** @type {number} */ value, /** @type {string} */ label) {
  const at = y(panel, value);
  return (
    `<path class="limit" d="M${LEFT} ${px(at)}H${WIDTH - RIGHT}"/>\n` +
    `<text class="bound" x="${WIDTH - RIGHT - 4}" y="${px(at - 6)}" text-anchor="end">${label}</text>`
  );
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
  const bar = (/** @type {string} */ name, /** @type {number} */ from, /** @type {number} */ to) =>
    to > from
      ? `<rect class="${name}" x="${px(x(at) + 0.75)}" width="${px(x(at + BIN_MS) - x(at) - 1.5)}" ` +
        `y="${px(y(panel, to))}" height="${px(y(panel, from) - y(panel, to))}"/>`
      : "";
  return bar("accepted", 0, accepted) + bar("dropped", accepted, accepted + dropped);
}

/**
 * @param {string} name
 * @param {Panel} panel
 * @param {{ at: number, value: number }[]} values
 * @param {(at: number) => number} x
 */
function area(name, panel, values, x) {
  const points = values.map(({ at, value }) => `${px(x(at))} ${px(y(panel, value))}`);
  const floor = px(y(panel, 0));
  return `<path class="${name}" d="M${px(x(Number(values[0]?.at)))} ${floor}L${points.join("L")}V${floor}Z"/>`;
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

/**
 * @param {number} bottom
 * @param {number} seconds
 * @param {(at: number) => number} x
 * @param {number} startedAt
 */
function timeAxis(bottom, seconds, x, startedAt) {
  const ticks = [];
  for (let second = 0; second <= seconds; second++) {
    const at = px(x(startedAt + second * 1000));
    ticks.push(
      `<line class="axis" x1="${at}" x2="${at}" y1="${bottom}" y2="${bottom + 5}"/>`,
      `<text x="${at}" y="${bottom + 21}" text-anchor="middle">${second}</text>`,
    );
  }
  return [
    `<line class="axis" x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${bottom}" y2="${bottom}"/>`,
    ...ticks,
    `<text x="${(LEFT + WIDTH - RIGHT) / 2}" y="${bottom + 46}" text-anchor="middle">time (seconds)</text>`,
  ].join("\n");
}

function legend() {
  const entries = [
    { name: "accepted", text: "accepted" },
    { name: "dropped", text: "dropped: the queue was full" },
  ];
  let left = WIDTH - RIGHT - 290;
  return entries
    .map(({ name, text }) => {
      const drawn = `<rect class="${name}" x="${left}" y="62" width="12" height="12" rx="2"/><text x="${left + 18}" y="73">${text}</text>`;
      left += 100;
      return drawn;
    })
    .join("\n");
}
