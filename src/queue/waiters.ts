import type { Context } from "../redis/context.js";

/** Who waits for a result: a process, and which of its waits. Neither holds a space. */
export const toWaiter = (address: string, waitId: string): string => `${address} ${waitId}`;

/** Larger results are not put into mailboxes: whoever waits in another process reads them from where they are kept. */
const INLINE_BYTES = 65_536;

/**
 * Tells everybody who waits for a call how it ended.
 *
 * @param body of the response; undefined where it has to be read from where it is kept.
 */
export function tellWaiters(context: Context, waiters: readonly string[], outcome: string, body?: Buffer): void {
  for (const waiter of waiters) {
    const [address = "", id = ""] = waiter.split(" ");
    const isInline = address === context.session.address || (body !== undefined && body.byteLength <= INLINE_BYTES);
    const message = { type: "done", id, outcome, body: isInline ? body : undefined } as const;
    context.mailbox.post(address, message).catch((error: unknown) => context.report.connection(error));
  }
}
