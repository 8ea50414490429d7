import { setTimeout as sleep } from "node:timers/promises";
import {
  BlockedError,
  BodyTooLargeError,
  type BucketRef,
  type BucketStats,
  type CallInput,
  type Client,
  InvalidCallError,
  RedisUnavailableError,
  type Ticket,
} from "../index.js";
import type { Call } from "./call.js";

/** What a lane tells the run. */
export interface LaneEvents {
  accepted(call: Call, ticket: Ticket): void;
  /** The call itself is wrong. */
  rejected(call: Call, error: Error): void;
  /** Redis answered, or did not. */
  contact(error?: RedisUnavailableError): void;
}

const BATCH = 200;
const BATCH_CHARACTERS = 1 << 20;
const UNREACHABLE_MS = 500;
const BLOCKED_MS = 5000;

/** Feeds the calls of one bucket into its bounded queue, in order, as the leak makes room. */
export class Lane {
  readonly ref: BucketRef;
  /** Calls of the input that this lane has not seen yet; undefined when the input was not counted. */
  unseen: number | undefined;
  /** When the last call that was accepted starts, as far as is known, in ms since the epoch. */
  #expectedAt = 0;
  /** Between one start and the next, in ms. */
  #spacing: number;
  readonly #client: Client;
  readonly #events: LaneEvents;
  readonly #inputOf: (call: Call) => CallInput;
  readonly #stopped: AbortSignal;
  readonly #waiting: Call[] = [];
  #pump: Promise<void> | undefined;
  /** So many calls to offer one by one, because one of them is wrong. */
  #singles = 0;

  constructor(
    client: Client,
    ref: BucketRef,
    inputOf: (call: Call) => CallInput,
    events: LaneEvents,
    stopped: AbortSignal,
  ) {
    this.ref = ref;
    this.#client = client;
    this.#inputOf = inputOf;
    this.#events = events;
    this.#stopped = stopped;
    const { rate, rules, latenessMs } = ref.limit;
    this.#spacing = spacingOf([rate, ...rules.filter((rule) => "perMs" in rule)], latenessMs);
  }

  /** Calls that wait here because their queue is full. */
  get waiting(): number {
    return this.#waiting.length;
  }

  /** When all its calls will have started, in ms since the epoch. */
  endsAt(now: number): number {
    return Math.max(now, this.#expectedAt) + (this.waiting + (this.unseen ?? 0)) * this.#spacing;
  }

  /** Takes over what the queue says of itself: its rate may have been changed, and it may be paused. */
  observe(stats: BucketStats, now: number): void {
    const { rules, latenessMs } = this.ref.limit;
    this.#spacing = spacingOf([stats.rate, ...rules.filter((rule) => "perMs" in rule)], latenessMs);
    this.#expectedAt = stats.depth > 0 ? stats.expectedAt.getTime() - this.#spacing : now;
  }

  push(call: Call): void {
    this.#waiting.push(call);
    this.#pump ??= this.#feed().finally(() => (this.#pump = undefined));
  }

  /** Resolves when nothing is on its way to the queue. */
  async ended(): Promise<void> {
    await this.#pump;
  }

  async #feed(): Promise<void> {
    // Whatever is read in the same chunk goes along.
    await sleep(0);
    while (this.#waiting.length > 0 && !this.#stopped.aborted) {
      const wait = await this.#offer(this.#nextBatch());
      if (wait > 0) await sleep(wait, undefined, { signal: this.#stopped }).catch(() => {});
    }
  }

  #nextBatch(): Call[] {
    const most = this.#singles > 0 ? 1 : BATCH;
    let characters = 0;
    let length = 0;
    while (length < Math.min(most, this.#waiting.length) && (length === 0 || characters < BATCH_CHARACTERS)) {
      characters += this.#waiting[length++]?.text.length ?? 0;
    }
    return this.#waiting.slice(0, length);
  }

  /** Returns the ms to wait before the next offer. */
  async #offer(batch: readonly Call[]): Promise<number> {
    try {
      const { tickets } = await this.#client.enqueueMany(batch.map(this.#inputOf), { mode: "fit" });
      this.#events.contact();
      for (const [i, call] of this.#waiting.splice(0, tickets.length).entries()) this.#accept(call, tickets[i]);
      this.#singles = Math.max(0, this.#singles - tickets.length);
      return tickets.length === batch.length ? 0 : this.#untilRoom();
    } catch (error) {
      if (error instanceof BlockedError) return Math.min(BLOCKED_MS, Math.ceil(error.retryAfter) + 1);
      if (error instanceof RedisUnavailableError) {
        this.#events.contact(error);
        return UNREACHABLE_MS;
      }
      this.#isolate(batch, error instanceof Error ? error : new Error(String(error)));
      return 0;
    }
  }

  #accept(call: Call, ticket: Ticket | undefined): void {
    if (ticket === undefined) return;
    this.#expectedAt = ticket.expectedAt?.getTime() ?? this.#expectedAt;
    this.#events.accepted(call, ticket);
  }

  #isolate(batch: readonly Call[], error: Error): void {
    const [call] = batch;
    if (batch.length > 1 && (error instanceof InvalidCallError || error instanceof BodyTooLargeError)) {
      this.#singles = batch.length;
    } else if (call !== undefined) {
      this.#waiting.shift();
      this.#singles = Math.max(0, this.#singles - 1);
      this.#events.rejected(call, error);
    }
  }

  /** A quarter of the queue has leaked then: it does not run dry, and is not asked all the time. */
  #untilRoom(): number {
    return Math.min(1000, Math.max(20, (this.ref.limit.capacity * this.#spacing) / 4));
  }
}

function spacingOf(rates: readonly { limit: number; perMs: number }[], lateness: number): number {
  return Math.max(...rates.map(({ limit, perMs }) => (perMs + lateness) / limit));
}
