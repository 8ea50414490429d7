import type { BucketRef } from "../limits/define.js";
import type { Context } from "../redis/context.js";
import { number } from "../redis/reply.js";

/** Closes the gate of a bucket for every process. Never shortens a longer pause. */
export async function pauseFor(context: Context, ref: BucketRef, milliseconds: number, reason: string): Promise<void> {
  const { session, report } = context;
  try {
    const reply = await session.run(ref, "control", ["", "pause", Math.round(milliseconds * 1000), reason]);
    const until = new Date(number(reply[2]) / 1000);
    report.events.emit("pause", { limit: ref.limit.name, bucket: ref.bucket, until, reason });
  } catch (error) {
    report.connection(error);
  }
}
