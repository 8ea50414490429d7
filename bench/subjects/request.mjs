// @ts-check
// The call that every subject makes: one GET through undici, read to its end.
import { Agent, request } from "undici";

const agent = new Agent();

/** @param {string} url */
export async function send(url) {
  const { statusCode, body } = await request(url, { dispatcher: agent });
  return { status: statusCode, body: await body.text() };
}

/**
 * Runs calls `first`, `first + step`, … for ever, `lanes` of them waiting at a time, for subjects whose calls are
 * functions of the process that asked.
 * @param {{ first: number, step: number, lanes: number }} numbers
 * @param {(n: number) => Promise<unknown>} call
 */
export function keepCalling({ first, step, lanes }, call) {
  let next = first;
  const lane = async () => {
    for (;;) {
      const n = next;
      next += step;
      await call(n);
    }
  };
  for (let i = 0; i < lanes; i++) void lane();
}

/** Enough calls waiting that the limiter never runs dry: a fifth of a second. @param {number} rate */
export const lanesFor = (rate) => 20 + Math.ceil(rate / 5);
