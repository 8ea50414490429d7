// @ts-check
// Counts what happened, and checks what was promised.
import { CAPACITY, RATE } from "./setting.mjs";

/**
 * Times in ms on one clock.
 *
 * @typedef {object} Recording
 * @property {number} startedAt
 * @property {import("./producers.mjs").Offer[]} offers
 * @property {{ at: number, depth: number }[]} depths Sampled.
 * @property {import("./upstream.mjs").Arrival[]} arrivals What the upstream saw, in order.
 * @property {number} blind The longest time for which the upstream saw nothing, because this machine was busy.
 */

export function count(/** @type {Recording} */ { offers, arrivals }) {
  const among = (/** @type {string} */ state) => offers.filter((offer) => offer.state === state).length;
  return {
    offered: offers.length,
    accepted: among("accepted"),
    dropped: among("dropped"),
    failed: among("failed"),
    sent: arrivals.length,
    refused: arrivals.filter(({ refused }) => refused).length,
  };
}

/** The most of these times (ascending, ms) in any window of one second. */
export function mostInOneSecond(/** @type {number[]} */ times) {
  let most = 0;
  let first = 0;
  for (const [last, at] of times.entries()) {
    while (Number(times[first]) + 1000 <= at) first++;
    most = Math.max(most, last - first + 1);
  }
  return most;
}

/** Starts a second during the longest time in which calls were waiting without a break. */
function leakRate(/** @type {Recording} */ { depths, arrivals }) {
  let best = { from: 0, to: 0 };
  let from = Number.NaN;
  for (const { at, depth } of depths) {
    if (depth === 0) from = Number.NaN;
    else if (Number.isNaN(from)) from = at;
    else if (at - from > best.to - best.from) best = { from, to: at };
  }
  const during = arrivals.map(({ at }) => at).filter((at) => at >= best.from && at <= best.to);
  const span = Number(during.at(-1)) - Number(during[0]);
  return { rate: ((during.length - 1) / span) * 1000, seconds: span / 1000 };
}

/**
 * @param {Recording} recording
 * @param {number} lateness Of the limit, in ms.
 */
export function summarise(recording, lateness) {
  const { offered, accepted, dropped, failed, sent, refused } = count(recording);
  const most = mostInOneSecond(recording.arrivals.map(({ at }) => at));
  const distinct = new Set(recording.arrivals.map(({ id }) => id)).size;
  const deepest = Math.max(...recording.depths.map(({ depth }) => depth));
  const leak = leakRate(recording);
  const spaced = (1000 + lateness) / RATE;
  const text = [
    row("offered", offered, "calls by two producers"),
    row("accepted", accepted, ""),
    row("dropped", dropped, `refused with ERR_QUEUE_FULL, as ${CAPACITY} were waiting`),
    row("sent", sent, `by three workers and the process that fetches`),
    row("refused by the upstream", refused, `which allows ${RATE} in any second`),
    row("most in any one second", most, `of ${RATE}`),
    row(
      "leak rate",
      leak.rate.toFixed(2),
      `a second, measured over ${leak.seconds.toFixed(1)} s; one each ${spaced} ms`,
    ),
  ].join("\n");
  const claims = [
    {
      holds: offered === accepted + dropped,
      flaw: `${offered} offered, but ${accepted} accepted and ${dropped} dropped`,
    },
    { holds: accepted === sent && distinct === sent, flaw: `${accepted} accepted, ${sent} sent, ${distinct} distinct` },
    {
      holds: failed === 0,
      flaw: `${failed} failed: ${String(recording.offers.find((one) => one.state === "failed")?.why)}`,
    },
    { holds: refused === 0, flaw: `the upstream refused ${refused}` },
    { holds: most <= RATE, flaw: `${most} starts in one second` },
    { holds: deepest <= CAPACITY, flaw: `${deepest} calls were waiting` },
  ];
  const flaws = claims.filter(({ holds }) => !holds).map(({ flaw }) => flaw);
  if (flaws.length > 0 && recording.blind > lateness) {
    flaws.push(`the machine was busy: the upstream's clock stood still for ${Math.round(recording.blind)} ms`);
  }
  return { text, flaws };
}

const row = (/** @type {string} */ name, /** @type {number | string} */ value, /** @type {string} */ note) =>
  `${name.padEnd(24)}${String(value).padStart(6)}  ${note}`.trimEnd();
