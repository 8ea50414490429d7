import { InvalidCallError, RedisUnavailableError, UnknownCallError } from "../errors.js";
import type { BucketRef } from "../limits/define.js";
import { notifyDropped } from "../queue/dropped.js";
import { toWaiter } from "../queue/waiters.js";
import { newId, ticketId } from "../queue/ids.js";
import { type CallResult, outcomes, settle } from "../queue/outcome.js";
import type { Context } from "../redis/context.js";
import { onAbort } from "../redis/abort.js";
import type { Message } from "../redis/mailbox.js";
import { bytes, list, text, texts } from "../redis/reply.js";
import { either, isSignal } from "./wait.js";

/** A durable call that was accepted. */
export interface Ticket {
  /** Enough to await or read the result in any process: `client.ticket(id)`. */
  readonly id: string;
  /**
   * When the call will start, as far as a fixed leak can tell: from the calls before it, the rate, the rules and
   * pauses. Undefined for a ticket made from an id, and for a call that had been accepted before.
   */
  readonly expectedAt: Date | undefined;
  /**
   * Waits for the response. Statuses are not errors here, except those that the limit's `retry` counts as failures.
   *
   * @throws {UpstreamError} when all attempts failed; {MaybeSentError}, {WaitExceededError}, {QueueFullError} (dropped
   *   as the oldest), {CancelledError} as their names say; {UnknownCallError} when the result is no longer kept.
   * @throws the signal's reason; the call itself goes on.
   */
  result(options?: { readonly signal?: AbortSignal }): Promise<CallResult>;
  /** Takes the call out of the queue. False when it is too late: it is being sent, or has ended. */
  cancel(): Promise<boolean>;
}

/** A message can be lost with a connection; the result itself cannot. */
const LOOK_AGAIN_MS = 5000;
const REGISTERED_MS = 60_000;

export class PendingTicket implements Ticket {
  readonly id: string;
  readonly expectedAt: Date | undefined;
  readonly #context: Context;
  readonly #ref: BucketRef;
  readonly #callId: string;
  readonly #closing: AbortSignal;

  constructor(context: Context, ref: BucketRef, callId: string, closing: AbortSignal, expectedAt?: Date) {
    this.id = ticketId(ref.bucket, callId);
    this.expectedAt = expectedAt;
    this.#context = context;
    this.#ref = ref;
    this.#callId = callId;
    this.#closing = closing;
  }

  async result(options: { readonly signal?: AbortSignal } = {}): Promise<CallResult> {
    // It would never be heard.
    if (isSignal(options))
      throw new InvalidCallError("Expected the options of `result` to be { signal }, got a signal");
    const { signal, release } = either(options.signal, this.#closing);
    try {
      return await this.#await(signal);
    } finally {
      release();
    }
  }

  #await(signal: AbortSignal): Promise<CallResult> {
    signal.throwIfAborted();
    // A call that failed may be retried by hand: this wait is not for the message that ended another one.
    const waitId = newId();
    return new Promise<CallResult>((resolve, reject) => {
      let settled = false;
      const settleWith = (end: () => void): void => {
        if (settled) return;
        settled = true;
        clearInterval(timer);
        stopReceiving();
        stopListening();
        end();
      };
      const abort = (): void => settleWith(() => reject(signal.reason));
      const onResult = (outcome: string, body: Buffer): void =>
        settleWith(() => {
          try {
            resolve(settle(this.id, outcome, body));
          } catch (error) {
            reject(error);
          }
        });
      const look = (): void => {
        this.#look(waitId).then(
          (found) => found !== undefined && onResult(found.outcome, found.body),
          (error: unknown) => {
            // While Redis is away there is nothing to say yet; the caller's signal bounds the wait.
            if (error instanceof RedisUnavailableError) this.#context.report.connection(error);
            else settleWith(() => reject(error));
          },
        );
      };
      const onMessage = (message: Message): void => {
        if (message.type !== "done") return;
        if (message.body === undefined) look();
        else onResult(message.outcome, message.body);
      };
      const stopReceiving = this.#context.mailbox.receive(waitId, onMessage);
      this.#context.mailbox.open();
      const timer = setInterval(look, LOOK_AGAIN_MS);
      const stopListening = onAbort(signal, abort);
      look();
    });
  }

  async #look(waitId: string): Promise<{ outcome: string; body: Buffer } | undefined> {
    const { session } = this.#context;
    const waiter = toWaiter(session.address, waitId);
    const reply = await session.runBuffer(this.#ref, "await", [this.#callId, waiter, REGISTERED_MS]);
    const state = text(reply[0]);
    if (state === "UNKNOWN") throw new UnknownCallError(this.id);
    return state === "DONE" ? { outcome: text(reply[1]), body: bytes(reply[2]) } : undefined;
  }

  async cancel(): Promise<boolean> {
    const { limit } = this.#ref;
    const outcome = outcomes.cancelled(limit.name, "The call was cancelled before it was sent");
    const reply = await this.#context.session.run(this.#ref, "cancel", [
      "",
      this.#callId,
      limit.keepResultsMs,
      outcome,
    ]);
    if (text(reply[0]) !== "CANCELLED") return false;
    notifyDropped(this.#context, this.#ref, ["cancelled", ...texts(list(reply[2]))]);
    return true;
  }
}
