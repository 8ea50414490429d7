// @ts-nocheck A program whose calls wait for slots, end in every way, and leave nothing that keeps the process.
import { defineLimits } from "spillway";
import { awaitSlot } from "../../dist/gate/line.js";
import { reserve } from "../../dist/gate/slot.js";
import { openContext } from "../../dist/redis/context.js";

const { redis, prefix } = JSON.parse(process.argv[2] ?? "{}");
const limits = defineLimits({ line: { rate: "10/s" } });
const context = openContext({ redis, prefix, limits });
const ref = limits.resolve("line");
const slotOf = (id) => reserve(context, ref, id, "next");
const ends = [];
const wait = async (id, how = {}) => {
  ends.push(awaitSlot(context, { ref, id, ...how }, await slotOf(id)).catch(() => {}));
};
await wait("starts");
await ends[0];
await context.session.run(ref, "control", ["", "pause", 3_600_000_000, "test"]);
await wait("leaves", { signal: AbortSignal.timeout(20) });
await wait("too late", { deadline: context.session.clock.now() + 40_000 });
await Promise.all(ends);
await context.close();
process.send({ type: "done" }, () => process.disconnect());
