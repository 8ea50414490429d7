// @ts-check
import PQueue from "p-queue";
import { keepCalling, lanesFor, send } from "./request.mjs";

/** @param {import("./index.mjs").Setting} setting */
export async function drain({ rate, host }) {
  const queue = new PQueue({ intervalCap: rate, interval: 1000, strict: true });
  keepCalling({ first: 0, step: 1, lanes: rate + lanesFor(rate) }, (n) => queue.add(() => send(`http://${host}/${n}`)));
}

/** @param {import("./index.mjs").Setting} _setting @param {number} count */
export async function hold(_setting, count) {
  const queue = new PQueue({ autoStart: false });
  for (let i = 0; i < count; i++) void queue.add(async () => {});
}
