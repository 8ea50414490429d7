import { returnSlot, type Slot } from "../gate/slot.js";
import type { BucketRef } from "../limits/define.js";
import type { Context } from "../redis/context.js";

/** A slot, and whether the permit counts among the calls in flight. */
export interface Grant {
  readonly slot: Slot;
  readonly counted: boolean;
}

/** Keeps the place among the calls in flight until the returned function is called. */
export function fly(context: Context, ref: BucketRef, id: string): () => void {
  const land = context.keeper.flight(ref, id);
  let landed = false;
  return () => {
    if (landed) return;
    landed = true;
    land();
    endFlight(context, ref, id);
  };
}

function endFlight({ session, report }: Context, ref: BucketRef, id: string): void {
  session.run(ref, "release", ["", id]).catch((error: unknown) => report.connection(error));
}

/** Gives back what was granted to a permit that nobody here waits for any more. */
export function refuseGrant(context: Context, ref: BucketRef, id: string, grant: Grant): void {
  returnSlot(context, ref, grant.slot);
  if (grant.counted) endFlight(context, ref, id);
}
