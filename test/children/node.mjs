// @ts-nocheck What comes and goes is JSON of many shapes, and the test that sends it knows them.
// A process with a client, a worker, or both, told by its parent what to do. Limits come as JSON.
import { setTimeout as sleep } from "node:timers/promises";
import { Cluster } from "ioredis";
import { createClient, createWorker, defineLimits } from "spillway";

const {
  role,
  redis: where,
  prefix,
  limits: definition,
  worker: workerOptions = {},
} = JSON.parse(process.argv[2] ?? "{}");
const limits = defineLimits(definition);
// A cluster comes as the list of its nodes. The instance is only a pattern, so it need not connect.
const redis = Array.isArray(where) ? new Cluster(where, { lazyConnect: true }) : where;
const client = role === "worker" ? undefined : createClient({ redis, prefix, limits, worker: role === "both" });
const worker = role === "worker" ? createWorker({ redis, prefix, limits, ...workerOptions }) : undefined;
const say = (type, details = {}) => process.connected && process.send?.({ type, ...details });

/**
 * Runs `count` calls, `width` at a time (0: all at once) with a pause after each, for `forMs` at most, and counts how
 * they end by code.
 */
async function many({ count = Infinity, width = 0, forMs = Infinity, pauseMs = 0 }, call) {
  const ends = {};
  const failed = [];
  const errors = [];
  const until = performance.now() + forMs;
  let next = 0;
  let slowest = 0;
  const lane = async () => {
    while (next < count && performance.now() < until) {
      const i = next++;
      const started = performance.now();
      let end = "ok";
      try {
        await call(i);
      } catch (error) {
        end = error.code ?? error.name;
        failed.push(i);
        if (errors.length < 3) errors.push(String(error?.stack ?? error));
        // A refusal is quick; lanes that did nothing else would leave no processor to anybody.
        await sleep(5);
      }
      slowest = Math.max(slowest, performance.now() - started);
      ends[end] = (ends[end] ?? 0) + 1;
      if (pauseMs > 0) await sleep(pauseMs);
    }
  };
  await Promise.all(Array.from({ length: width === 0 ? count : width }, lane));
  return { ends, errors, failed, slowest };
}

const url = (base, i, tag = "") => `${base}/?n=${tag}${i}`;
const get = async (fetch, target) => {
  const response = await fetch(target);
  await response.arrayBuffer();
};
/** How a durable call ended, as plain data. */
async function outcome(ticket) {
  try {
    const { status, attempts, bodyDropped } = await ticket.result();
    return { status, attempts, bodyDropped };
  } catch (error) {
    return { code: error.code ?? String(error), status: error.status, attempts: error.attempts };
  }
}

const commands = {
  fetch: ({ url: base, tag, ...how }) => many(how, (i) => get(client.fetch, url(base, i, tag))),
  run: ({ limit, ...how }) => many(how, () => client.run(limit, () => undefined)),
  enqueue: ({ url: base, tag, init, width = 1, ...how }) =>
    many({ ...how, width }, async (i) => {
      const ticket = await client.enqueue(url(base, i, tag), init);
      say("ticket", { id: ticket.id, n: i });
    }),
  deliver: ({ url: base, tag, init, ...how }) =>
    many(how, async (i) => (await client.enqueue(url(base, i, tag), init)).result()),
  /** All three doors in turn. */
  mix: ({ url: base, limit, tag, ...how }) =>
    many(how, async (i) => {
      const target = url(base, i, tag);
      if (i % 3 === 0) await client.enqueue(target);
      else if (i % 3 === 1) await get(client.fetch, target);
      else await client.run(limit, () => get(fetch, target));
    }),
  outcomes: async ({ ids }) => ({ outcomes: await Promise.all(ids.map((id) => outcome(client.ticket(id)))) }),
  cancel: async ({ id }) => ({ cancelled: await client.ticket(id).cancel() }),
  /** A method of `client.limit(limit)`. */
  limit: async ({ limit, method, args = [] }) => ({ value: await client.limit(limit)[method](...args) }),
  /** Blocks the event loop for `ms`, `times` times, with as long a break in between. */
  block: async ({ ms, times }) => {
    for (let i = 0; i < times; i++) {
      await sleep(ms);
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
    }
  },
  close: async () => {
    await (client ?? worker).close();
    // Without its channel to the parent, the process ends as soon as nothing else keeps it.
    // Calls that closing has ended are reported first.
    setTimeout(() => process.disconnect(), 50);
    setTimeout(() => console.error("Still kept by", process.getActiveResourcesInfo()), 3_000).unref();
  },
};

process.on("message", ({ type, ...details }) => {
  commands[type](details).then(
    (result) => say(`${type}-done`, result),
    (error) => say("failed", { error: String(error?.stack ?? error) }),
  );
});
for (const event of ["warning", "drop", "unattended", "pause", "finish"]) {
  (client ?? worker).events.on(event, (details) =>
    say(event, { details: String(details?.message ?? JSON.stringify(details)) }),
  );
}
// By this name Redis knows the process.
say("ready", { address: (client ?? worker).context.session.address });
