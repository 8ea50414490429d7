// @ts-check
// What happens, while it happens: redrawn in place on a terminal, one line a second elsewhere.
import { count } from "./report.mjs";
import { CAPACITY, now, RATE } from "./setting.mjs";

const BAR = 40;
const TITLE = `spillway: three workers share ${RATE} starts a second; the upstream refuses more; ${CAPACITY} calls may wait`;

/** @typedef {import("./report.mjs").Recording} Recording */

/** @param {number} seconds How long calls will be offered. */
export function openView(seconds) {
  const terminal = process.stdout.isTTY;
  let drawn = 0;
  let said = 0;
  process.stdout.write(`${TITLE}\n\n`);
  return {
    draw(/** @type {Recording} */ recording) {
      const state = look(recording);
      if (terminal) {
        const lines = redraw(state, seconds);
        // Up over what was drawn before, then each line anew to its end.
        process.stdout.write(`${drawn > 0 ? `\x1b[${drawn}A` : ""}${lines.map((line) => `${line}\x1b[K\n`).join("")}`);
        drawn = lines.length;
      } else if (state.elapsed >= said) {
        said = Math.floor(state.elapsed) + 1;
        process.stdout.write(`${oneLine(state)}\n`);
      }
    },
    end() {
      process.stdout.write("\n");
    },
  };
}

function look(/** @type {Recording} */ recording) {
  const { offers, arrivals, depths, startedAt } = recording;
  const since = now() - 1000;
  /** @type {Map<string, number>} */
  const by = new Map();
  for (const arrival of arrivals) by.set(arrival.by, (by.get(arrival.by) ?? 0) + 1);
  return {
    ...count(recording),
    elapsed: (now() - startedAt) / 1000,
    depth: depths.at(-1)?.depth ?? 0,
    offeredNow: offers.filter(({ at }) => at > since).length,
    sentNow: arrivals.filter(({ at }) => at > since).length,
    by: [...by].sort(([a], [b]) => (a < b ? -1 : 1)),
  };
}

/** @typedef {ReturnType<typeof look>} State */

function redraw(/** @type {State} */ state, /** @type {number} */ seconds) {
  const bar = (/** @type {number} */ value, /** @type {number} */ full) => {
    const filled = Math.min(BAR, Math.round((value / full) * BAR));
    return "█".repeat(filled) + "░".repeat(BAR - filled);
  };
  return [
    `  time      ${bar(state.elapsed, seconds)}  ${state.elapsed.toFixed(1)} s`,
    `  offered   ${bar(state.offeredNow, 4 * RATE)}  ${state.offeredNow} in the last second`,
    `  waiting   ${bar(state.depth, CAPACITY)}  ${state.depth} of ${CAPACITY}`,
    `  sent      ${bar(state.sentNow, 4 * RATE)}  ${state.sentNow} in the last second`,
    "",
    `  ${state.offered} offered   ${state.dropped} dropped   ${state.sent} sent   ${state.refused} refused by the upstream`,
    `  sent by   ${state.by.map(([name, calls]) => `${name}: ${calls}`).join("   ")}`,
  ];
}

function oneLine(/** @type {State} */ state) {
  const cell = (/** @type {number} */ value, /** @type {number} */ width = 4) => String(value).padStart(width);
  return (
    `${cell(Math.round(state.elapsed), 3)} s  offered ${cell(state.offered)}  dropped ${cell(state.dropped)}  ` +
    `waiting ${cell(state.depth)}  sent ${cell(state.sent)}  refused ${cell(state.refused)}`
  );
}
