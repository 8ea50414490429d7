import { setTimeout as sleep } from "node:timers/promises";
import { type Client, RedisUnavailableError } from "../index.js";
import type { Lane } from "./lane.js";

const INTERVAL_MS = 1000;
/** How long Redis may be away: at first, so that a wrong address is known soon; and later. */
const FIRST_CONTACT_MS = 5000;
const CONTACT_MS = 60_000;

/** Looks at the queue that will take longest: for the ETA, for pauses, and whether Redis is there. */
export class Watch {
  /** What holds up that queue. */
  note: string | undefined;
  readonly #client: Client;
  readonly #lanes: ReadonlyMap<string, Lane>;
  readonly #onLost: (error: RedisUnavailableError) => void;
  #lastContact: number = performance.now();
  #patience = FIRST_CONTACT_MS;

  /** @param onLost Redis has been away for too long. */
  constructor(client: Client, lanes: ReadonlyMap<string, Lane>, onLost: (error: RedisUnavailableError) => void) {
    this.#client = client;
    this.#lanes = lanes;
    this.#onLost = onLost;
  }

  /** Redis has answered, or it has not. */
  contact(error?: RedisUnavailableError): void {
    const now = performance.now();
    if (error === undefined) {
      this.#lastContact = now;
      this.#patience = CONTACT_MS;
    } else if (now - this.#lastContact > this.#patience) {
      this.#onLost(error);
    }
  }

  async run(signal: AbortSignal): Promise<void> {
    for (;;) {
      await sleep(INTERVAL_MS, undefined, { signal }).catch(() => {});
      if (signal.aborted) return;
      const now = Date.now();
      const [lane] = [...this.#lanes.values()].sort((a, b) => b.endsAt(now) - a.endsAt(now));
      if (lane !== undefined) await this.#look(lane);
    }
  }

  async #look(lane: Lane): Promise<void> {
    const { limit, host, key } = lane.ref;
    try {
      const stats = await this.#client.limit(host ?? limit.name, key).stats();
      this.contact();
      if (stats.bucket !== lane.ref.bucket) return;
      lane.observe(stats, Date.now());
      const closed = stats.blocked ?? stats.paused;
      this.note = closed && `${limit.name} pauses until ${closed.until.toLocaleTimeString("en-GB")} (${closed.reason})`;
    } catch (error) {
      // Not every bucket can be named; what is known without looking is enough then.
      if (error instanceof RedisUnavailableError) this.contact(error);
    }
  }
}
