// @ts-check
// The service that is called: a process of its own, so that its clock is honest. It answers 429 to whatever exceeds
// RATE in any sliding second.
import { createServer } from "node:http";
import { constants, setPriority } from "node:os";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { endWithParent, now, RATE, tellParent } from "./setting.mjs";

/** @typedef {{ at: number, id: number, by: string, refused: boolean }} Arrival */

const LATENCY_MS = 40;
try {
  // Where that is allowed: on a busy machine it would see what came evenly in one heap.
  setPriority(constants.priority.PRIORITY_HIGH);
} catch {}
const delay = monitorEventLoopDelay({ resolution: 5 });
delay.enable();
/** @type {Arrival[]} */
const arrivals = [];
/** @type {number[]} */
const lastSecond = [];

const server = createServer((request, response) => {
  const at = now();
  while (lastSecond[0] !== undefined && lastSecond[0] + 1000 <= at) lastSecond.shift();
  const refused = lastSecond.length >= RATE;
  if (!refused) lastSecond.push(at);
  const id = Number(request.url?.slice(1));
  arrivals.push({ at, id, by: String(request.headers["x-sent-by"]), refused });
  setTimeout(() => response.writeHead(refused ? 429 : 200).end(), LATENCY_MS);
});
server.listen(0, "127.0.0.1", () => tellParent({ address: server.address() }));

// Tells what has arrived since it was last asked, and the longest time for which it saw nothing (ms).
process.on("message", () => tellParent({ arrivals: arrivals.splice(0), blind: delay.max / 1e6 }));
endWithParent(() => {
  delay.disable();
  server.close();
  server.closeAllConnections();
});
