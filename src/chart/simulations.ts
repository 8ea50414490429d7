import { formatDuration, UNIT_MS } from "../limits/duration.js";
import type { Simulation } from "../simulate/simulate.js";
import type { Timeline } from "../simulate/timeline.js";
import {
  area,
  bound,
  escapeText,
  frame,
  LEFT,
  legend,
  page,
  type Panel,
  type Point,
  RIGHT,
  scale,
  timeAxis,
  WIDTH,
} from "./svg.js";

type Counted = "offered" | "sent" | "refused" | "waiting";

const FIRST_TOP = 128;
const HEIGHT = { offered: 70, sent: 70, waiting: 60 };
/** Below a panel, and below all of a policy. */
const GAP = { panel: 46, policy: 92 };

type Scale = Pick<Panel, "most" | "step" | "unit">;
type X = (at: number) => number;

/**
 * Draws simulations as one SVG: for each policy, under its name, what was offered and refused, what was sent, and how much
 * waited. They share their axes, so that policies can be compared.
 */
export function drawSimulations(simulations: Readonly<Record<string, Simulation>>): string {
  const named = Object.entries(simulations);
  const lines = named.map(([, { timeline }]) => timeline);
  const filled = lines.filter(({ offered }) => offered.length > 0);
  const start = filled.length === 0 ? 0 : Math.min(...filled.map(({ from }) => from));
  const span = Math.max(1, ...filled.map(({ from, step, offered }) => from + step * offered.length - start));
  const x: X = (at) => LEFT + ((at - start) / span) * (WIDTH - LEFT - RIGHT);

  const offered = rateScale(lines, "offered");
  const sent = rateScale(lines, "sent");
  const waiting = { ...scale(1.05 * Math.max(1, ...lines.flatMap((line) => line.waiting))), unit: "calls, on average" };
  let top = FIRST_TOP;
  const place = (from: Scale, height: number, title: string, gap: number): Panel => {
    const panel = { ...from, top, height, title };
    top += height + gap;
    return panel;
  };
  const groups = named.map(([name, simulation]) => {
    const title = `<text class="title" x="24" y="${top - 44}">${escapeText(name)}</text>`;
    const first = place(offered, HEIGHT.offered, "Offered", GAP.panel);
    const second = place(sent, HEIGHT.sent, "Sent", GAP.panel);
    const third = place(waiting, HEIGHT.waiting, "Waiting", GAP.policy);
    return [title, ...drawPolicy(simulation, [first, second, third], [offered.ms, sent.ms], x)].join("\n");
  });
  const bottom = top - (named.length === 0 ? 0 : GAP.policy);
  const times = ticks(span).map((tick) => start + tick);
  const label = (at: number): string | number => (at === start ? 0 : formatDuration(at - start));
  const axis = timeAxis(bottom, times, x, label, "time since the first call");
  return page({
    title: named.length === 1 ? "Simulated" : `${named.length} policies, simulated with the same calls`,
    description: named.map(([name, simulation]) => describe(name, simulation)).join(" "),
    height: bottom + 62,
    body: [legend(LEGEND, WIDTH - RIGHT - 320), ...groups, axis].join("\n"),
  });
}

const LEGEND = [
  { name: "accepted", text: "offered", width: 90 },
  { name: "dropped", text: "refused", width: 85 },
  { name: "rate", text: "sent", width: 70 },
  { name: "depth", text: "waiting", width: 0 },
];

/** In calls per second, minute, hour or day: whichever gives numbers from 1 on. */
function rateScale(lines: readonly Timeline[], what: Counted): Scale & { readonly ms: number } {
  const peak = Math.max(1e-12, ...lines.map((line) => Math.max(0, ...line[what]) / line.step));
  const units = Object.entries(UNIT_MS).filter(([name]) => name !== "ms");
  const [name, ms] = units.toReversed().find((unit) => peak * unit[1] >= 1) ?? ["d", UNIT_MS.d];
  return { ...scale(peak * ms * 1.1), unit: `calls per ${name}`, ms };
}

function drawPolicy(
  simulation: Simulation,
  [offered, sent, waiting]: readonly [Panel, Panel, Panel],
  [offeredMs, sentMs]: readonly [number, number],
  x: X,
): string[] {
  const { timeline } = simulation;
  return [
    frame(offered),
    stairs("accepted", offered, timeline, "offered", x, offeredMs),
    stairs("dropped", offered, timeline, "refused", x, offeredMs),
    frame(sent),
    stairs("rate", sent, timeline, "sent", x, sentMs),
    rateLine(sent, simulation, sentMs),
    frame(waiting),
    stairs("depth", waiting, timeline, "waiting", x, timeline.step),
  ];
}

function stairs(name: string, panel: Panel, line: Timeline, what: Counted, x: X, unitMs: number): string {
  const values = line[what].map((value) => (value / line.step) * unitMs);
  const points = values.flatMap((value, i): Point[] => {
    const at = line.from + i * line.step;
    // Only where it changes: a picture of days is no larger than it must be.
    const ends = [
      { at, value },
      { at: at + line.step, value },
    ];
    return i > 0 && i < values.length - 1 && values[i - 1] === value && values[i + 1] === value ? [] : ends;
  });
  return area(name, panel, points, x);
}

/** Where one bucket is all there is, its rate can be compared with what is sent. */
function rateLine(panel: Panel, { limits }: Simulation, unitMs: number): string {
  const [only, ...others] = Object.values(limits);
  if (only === undefined || others.length > 0 || only.buckets > 1) return "";
  const { limit, perMs } = only.rate;
  const value = (limit / perMs) * unitMs;
  const period = formatDuration(perMs).replace(/^1(?=[a-z]+$)/, "");
  return value > panel.most ? "" : bound(panel, value, `${limit}/${period}`);
}

function describe(name: string, { total }: Simulation): string {
  const refused = total.offered - total.sent;
  return `${name}: ${total.offered} calls offered, ${total.sent} sent, ${refused} refused, at most ${total.mostWaiting} waiting.`;
}

const TICKS = [1, 2, 5, 10, 20, 50, 100, 200, 500]
  .concat([1, 2, 5, 10, 15, 30].map((n) => n * UNIT_MS.s))
  .concat([1, 2, 5, 10, 15, 30].map((n) => n * UNIT_MS.m))
  .concat([1, 2, 3, 6, 12].map((n) => n * UNIT_MS.h))
  .concat([1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].map((n) => n * UNIT_MS.d));

/** Six to about twelve round times from 0 on. */
function ticks(span: number): number[] {
  const step = TICKS.find((size) => span / size <= 10) ?? Math.ceil(span / 10);
  return Array.from({ length: Math.floor(span / step) + 1 }, (_, i) => i * step);
}
