// A process with a client, a worker, or both, told by its parent what to do. Limits come as JSON.
import { createClient, createWorker, defineLimits } from "spillway";

const { role, redis, prefix, limits: definition, worker: workerOptions = {} } = JSON.parse(process.argv[2]);
const limits = defineLimits(definition);
const client = role === "worker" ? undefined : createClient({ redis, prefix, limits, worker: role === "both" });
const worker = role === "worker" ? createWorker({ redis, prefix, limits, ...workerOptions }) : undefined;
const say = (type, details = {}) => process.send?.({ type, ...details });

/** Runs `count` calls, `width` at a time (0: all at once), and counts how they end by code. */
async function many(count, width, call) {
  const ends = {};
  const errors = [];
  let next = 0;
  const lane = async () => {
    while (next < count) {
      const i = next++;
      let end = "ok";
      try {
        await call(i);
      } catch (error) {
        end = error.code ?? error.name;
        if (errors.length < 3) errors.push(String(error?.stack ?? error));
      }
      ends[end] = (ends[end] ?? 0) + 1;
    }
  };
  await Promise.all(Array.from({ length: width === 0 ? count : width }, lane));
  return { ends, errors };
}

const url = (base, i, tag = "") => `${base}/?n=${tag}${i}`;

const commands = {
  fetch: ({ url: base, count, width = 0, tag }) =>
    many(count, width, async (i) => (await client.fetch(url(base, i, tag))).arrayBuffer()),
  run: ({ limit, count, width = 0 }) => many(count, width, () => client.run(limit, () => undefined)),
  enqueue: ({ url: base, count, width = 1, tag, init }) =>
    many(count, width, async (i) => {
      const ticket = await client.enqueue(url(base, i, tag), init);
      say("ticket", { id: ticket.id, n: i });
    }),
  deliver: ({ url: base, count, width = 0, tag, init }) =>
    many(count, width, async (i) => (await client.enqueue(url(base, i, tag), init)).result()),
  close: async () => {
    await (client ?? worker).close();
    setTimeout(() => process.disconnect(), 0);
    return {};
  },
};

process.on("message", async ({ type, ...details }) => {
  try {
    const result = await commands[type](details);
    say(`${type}-done`, result);
  } catch (error) {
    say("failed", { error: String(error?.stack ?? error) });
  }
});
for (const event of ["warning", "drop", "unattended", "pause", "finish"]) {
  (client ?? worker).events.on(event, (details) =>
    say(event, { details: String(details?.message ?? JSON.stringify(details)) }),
  );
}
say("ready");
