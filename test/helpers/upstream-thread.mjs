// Runs the server in a thread of its own, so that a busy test does not distort the arrival times.
import { parentPort, workerData } from "node:worker_threads";
import { listen } from "./upstream-server.mjs";

const { options, clockOffset } = workerData;
// The monotonic clock is one for all threads; `performance.now()` starts anew in each.
const now = () => Number(process.hrtime.bigint()) / 1e6 + clockOffset;
const { port, arrivals } = await listen(options, now);
parentPort?.on("message", () => parentPort?.postMessage({ arrivals: arrivals.splice(0) }));
parentPort?.postMessage({ port });
