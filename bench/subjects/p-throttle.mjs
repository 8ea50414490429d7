// @ts-check
import pThrottle from "p-throttle";
import { keepCalling, lanesFor, send } from "./request.mjs";

/** @param {import("./index.mjs").Setting} setting */
export async function drain({ rate, host }) {
  const throttled = pThrottle({ limit: 1, interval: 1000 / rate, strict: true })((/** @type {number} */ n) =>
    send(`http://${host}/${n}`),
  );
  keepCalling({ first: 0, step: 1, lanes: lanesFor(rate) }, throttled);
}

/** @param {import("./index.mjs").Setting} _setting @param {number} count */
export async function hold(_setting, count) {
  const throttled = pThrottle({ limit: 1, interval: 10_000 })(async () => {});
  for (let i = 0; i < count; i++) void throttled();
}
