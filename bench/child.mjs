// @ts-check
// A process under measurement: drains, adds, calls or holds, as it is told.
import { serve } from "./processes.mjs";
import { load } from "./subjects/index.mjs";
import { send } from "./subjects/request.mjs";

/** @typedef {import("./subjects/index.mjs").Setting & { blockMs?: number }} ChildInput */

// Written by this package's own bench only.
const setting = /** @type {ChildInput} */ (JSON.parse(process.argv[2] ?? ""));
const adapter = await load(setting.subject);

/** Keeps the event loop busy for a while in every second. @param {number} milliseconds */
function stall(milliseconds) {
  const { index = 0, processes = 1 } = setting;
  const block = () => {
    const until = performance.now() + milliseconds;
    while (performance.now() < until);
  };
  setTimeout(() => setInterval(block, 1000), (1000 * index) / processes);
}

/** @type {import("./subjects/index.mjs").Producer | undefined} */
let producer;
/** @type {Record<string, (path: string) => Promise<unknown>>} */
let ways = {};

serve({
  cpu: () => {
    const { user, system } = process.cpuUsage();
    return { micros: user + system };
  },
  rss: () => {
    globalThis.gc?.();
    return { bytes: process.memoryUsage().rss };
  },
  async drain() {
    await adapter.drain?.(setting);
    if (setting.blockMs !== undefined) stall(setting.blockMs);
  },
  async open() {
    producer = await adapter.produce?.(setting);
    await producer?.one(0);
  },
  /** Adds for some milliseconds, so many at a time; says how many were added in what time. */
  async produce({ milliseconds, lanes, bulk }) {
    const startedAt = performance.now();
    const until = startedAt + Number(milliseconds);
    const size = Number(bulk);
    let added = 0;
    let next = 0;
    const lane = async () => {
      while (performance.now() < until) {
        const first = next;
        next += Math.max(1, size);
        await (size > 0 ? producer?.many(first, size) : producer?.one(first));
        added += Math.max(1, size);
      }
    };
    await Promise.all(Array.from({ length: Number(lanes) }, lane));
    return { added, milliseconds: performance.now() - startedAt };
  },
  async callers() {
    const bare = `http://${setting.host}`;
    ways = {
      "bare request (undici)": (path) => send(bare + path),
      "bare `fetch`": async (path) => (await fetch(bare + path)).text(),
      ...(await adapter.callers?.(setting)),
    };
    return { names: Object.keys(ways) };
  },
  /** Makes calls one after another; says how long each took, in ms. */
  async call({ way, path, count }) {
    const call = ways[String(way)];
    const took = [];
    for (let i = 0; i < Number(count); i++) {
      const from = performance.now();
      await call?.(String(path));
      took.push(performance.now() - from);
    }
    return { took };
  },
  hold: ({ count }) => adapter.hold?.(setting, Number(count)),
});
