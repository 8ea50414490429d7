// @ts-check
// Two producers that know nothing of the limit: one fetches and waits for each answer, one leaves its calls to the
// workers. Both get ERR_QUEUE_FULL when there is no room.
import { setTimeout as sleep } from "node:timers/promises";
import { QueueFullError } from "spillway";
import { now } from "./setting.mjs";

/** @typedef {{ at: number, state: "offered" | "accepted" | "dropped" | "failed", why?: unknown }} Offer */

/** So many calls a second, until this share of the time; a shorter time gets as many calls. */
const LOAD_SECONDS = 10;
const LOAD = [
  { until: 0.18, rate: 30 },
  { until: 0.38, rate: 150 },
  { until: 0.7, rate: 22 },
  { until: 0.76, rate: 300 },
  { until: 1, rate: 12 },
];
const TICK_MS = 10;

/**
 * Offers the whole load, and waits for all that was accepted to be answered.
 *
 * @param {import("spillway").Client} client
 * @param {{ host: string, seconds: number, offers: Offer[], signal: AbortSignal }} options
 */
export async function offerAll(client, { host, seconds, offers, signal }) {
  const started = now();
  const calls = [];
  let due = 0;
  for (let last = started; !signal.aborted;) {
    const at = now();
    const share = (at - started) / (seconds * 1000);
    const phase = LOAD.find(({ until }) => share < until);
    if (phase === undefined) break;
    due += ((at - last) / 1000) * phase.rate * (LOAD_SECONDS / seconds);
    last = at;
    for (; due >= 1; due--) calls.push(offer(client, `http://${host}/${calls.length}`, { offers, signal }));
    await sleep(TICK_MS);
  }
  await Promise.all(calls);
}

/**
 * @param {import("spillway").Client} client
 * @param {string} url
 * @param {{ offers: Offer[], signal: AbortSignal }} options
 */
async function offer(client, url, { offers, signal }) {
  /** @type {Offer} */
  const one = { at: now(), state: "offered" };
  offers.push(one);
  try {
    if (offers.length % 2 === 0) {
      const response = await client.fetch(url, { headers: { "x-sent-by": "fetch" }, signal });
      one.state = "accepted";
      await response.text();
    } else {
      const ticket = await client.enqueue(url);
      one.state = "accepted";
      await ticket.result({ signal });
    }
  } catch (error) {
    one.state = error instanceof QueueFullError ? "dropped" : "failed";
    one.why = error;
  }
}
