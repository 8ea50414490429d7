import type { Context } from "../redis/context.js";

/** Who waits for a result: a process, and which of its waits. Neither holds a space. */
export const toWaiter = (address: string, waitId: string): string => `${address} ${waitId}`;

/**
 * Tells everybody who waits for a call how it ended.
 *
 * @param body of the response; undefined where it has to be read from where it is kept.
 */
export function tellWaiters(context: Context, waiters: readonly string[], outcome: string, body?: Buffer): void {
  for (const waiter of waiters) {
    const [address = "", id = ""] = waiter.split(" ");
    const message = { type: "done", id, outcome, body } as const;
    context.mailbox.post(address, message).catch((error: unknown) => context.report.connection(error));
  }
}
