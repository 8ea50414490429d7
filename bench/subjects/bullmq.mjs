// @ts-check
import { Queue, QueueEvents, Worker } from "bullmq";
import { Redis } from "ioredis";
import { send } from "./request.mjs";

/** @typedef {import("./index.mjs").Setting} Setting */

const NAME = "bench";
const CONCURRENCY = 50;
const kept = { removeOnComplete: true, removeOnFail: true };

/** A connection that waits for ever, as workers need it. @param {Setting} setting */
const connect = ({ redis }) => new Redis(redis, { maxRetriesPerRequest: null });

/** @param {Setting} setting */
const dataOf = ({ host }, /** @type {number} */ n, body = "") => ({
  url: `http://${host}/${n}`,
  method: body === "" ? "GET" : "POST",
  headers: [],
  ...(body !== "" && { body }),
});

/** @param {Setting} setting @returns {Promise<import("./index.mjs").Producer>} */
export async function produce(setting) {
  const connection = connect(setting);
  const queue = new Queue(NAME, { connection, defaultJobOptions: kept });
  await queue.waitUntilReady();
  return {
    one: (n, body) => queue.add("request", dataOf(setting, n, body)),
    many: (first, count) =>
      queue.addBulk(
        Array.from({ length: count }, (_, i) => ({ name: "request", data: dataOf(setting, first + i), opts: kept })),
      ),
    close: async () => {
      await queue.close();
      connection.disconnect();
    },
  };
}

/** @param {Setting} setting */
export async function drain(setting) {
  const { rate, subject } = setting;
  const limiter =
    subject.variant === "spaced"
      ? { limiter: { max: 1, duration: Math.floor(1000 / rate) } }
      : subject.variant === "windowed"
        ? { limiter: { max: rate, duration: 1000 } }
        : {};
  const work = async (/** @type {{ data: { url: string } }} */ job) => (await send(job.data.url)).status;
  const worker = new Worker(NAME, work, { connection: connect(setting), concurrency: CONCURRENCY, ...limiter });
  worker.on("error", () => {});
}

/** @param {Setting} setting */
export async function callers(setting) {
  const connection = connect(setting);
  const queue = new Queue(NAME, { connection });
  const events = new QueueEvents(NAME, { connection: connect(setting) });
  await events.waitUntilReady();
  const work = async (/** @type {{ data: { url: string } }} */ job) => (await send(job.data.url)).body;
  const worker = new Worker(NAME, work, { connection: connect(setting), concurrency: CONCURRENCY });
  worker.on("error", () => {});
  return {
    "bullmq, `waitUntilFinished`": async (/** @type {string} */ path) => {
      // Kept for a moment: a job that is removed at once may be gone before it is waited for.
      const job = await queue.add("request", { url: `http://${setting.host}${path}` }, { removeOnComplete: 100 });
      await job.waitUntilFinished(events);
    },
  };
}
