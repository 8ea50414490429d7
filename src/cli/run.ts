import { createHash } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import {
  type BucketRef,
  type CallInput,
  CancelledError,
  ClosedError,
  type RedisUnavailableError,
  type Ticket,
  UnknownHostError,
  UpstreamError,
} from "../index.js";
import { type RunArguments, UsageError } from "./arguments.js";
import type { Call, InvalidLine } from "./call.js";
import type { Setting } from "./config.js";
import type { Connection } from "./connection.js";
import { Fingerprints } from "./fingerprints.js";
import { Lane } from "./lane.js";
import type { Progress } from "./progress.js";
import type { Earlier } from "./resume.js";
import { describe, type Results, type Subject } from "./results.js";
import type { Source } from "./source.js";
import type { Survey } from "./survey.js";
import { Tally } from "./tally.js";
import { Watch } from "./watch.js";

/** Why a run ended before all calls had. */
export interface Stop {
  /** Exit status. */
  readonly code: number;
  readonly why: string;
}

export interface RunParts {
  readonly given: RunArguments;
  readonly setting: Setting;
  readonly source: Source;
  readonly earlier: Earlier;
  /** Undefined for an input that can be read once only. */
  readonly survey: Survey | undefined;
  readonly results: Results;
  readonly connection: Connection;
  say(message: string): void;
}

/** Calls that have been read and have not ended, at most: what a run holds in memory. */
const MOST_OPEN = 4000;
const MOST_OPEN_CHARACTERS = 64 * 1024 * 1024;
/** Lines that are reported one by one. */
const MOST_REPORTED = 20;
/** Results of calls that have ended arrive within this. */
const ARRIVAL_MS = 5000;

/** Reads calls, feeds them into their queues, and writes their results. */
export class Run {
  readonly tally: Tally = new Tally();
  readonly #parts: RunParts;
  readonly #stopping = new AbortController();
  readonly #lanes = new Map<string, Lane>();
  readonly #tickets = new Map<Call, Ticket>();
  readonly #ids = new Fingerprints();
  readonly #durable: boolean;
  #open = 0;
  #openCharacters = 0;
  #wakers: (() => void)[] = [];
  #read = 0;
  #readAll = false;
  #reported = 0;
  readonly #watch: Watch;
  #stop: Stop | undefined;

  constructor(parts: RunParts) {
    this.#parts = parts;
    this.#durable = parts.given.name !== undefined;
    const lost = (error: Error): void => this.stop({ code: 1, why: `Redis does not answer: ${error.message}` });
    this.#watch = new Watch(parts.connection.client, this.#lanes, lost);
  }

  /** Resolves when all calls have ended, or the run was stopped and nothing is in flight any more. */
  async execute(): Promise<Stop | undefined> {
    const watching = this.#watch.run(this.#stopping.signal);
    try {
      await this.#feed();
      await this.#until(() => this.#open === 0 || this.#stop !== undefined);
      if (this.#stop !== undefined) await this.#windDown();
    } finally {
      this.#stopping.abort();
      await watching;
    }
    return this.#stop;
  }

  /** Stops feeding; what is in flight may end. */
  stop(stop: Stop): void {
    if (this.#stop !== undefined) return;
    this.#stop = stop;
    this.#stopping.abort();
    this.#parts.source.close();
    this.#wake();
  }

  /** Calls in the queue that a later run finds there. */
  get queued(): number {
    return this.#tickets.size;
  }

  progress(): Omit<Progress, "perSecond"> {
    const { earlier, survey } = this.#parts;
    const total = survey?.total ?? (this.#readAll ? this.#read : undefined);
    const now = Date.now();
    const ends = [...this.#lanes.values()].map((lane) => lane.endsAt(now));
    const left = total === undefined || ends.length === 0 ? undefined : Math.max(...ends) - now;
    const { ended, failed, retries } = this.tally;
    return {
      done: earlier.done + ended,
      total,
      failed: earlier.failed + failed,
      retries,
      left,
      note: this.#watch.note,
    };
  }

  async #feed(): Promise<void> {
    try {
      for await (const call of this.#parts.source.calls()) {
        this.#read++;
        this.#take(call);
        await this.#until(() => this.#hasRoom() || this.#stop !== undefined);
        if (this.#stop !== undefined) return;
      }
      this.#readAll = true;
    } catch (error) {
      // Stopping also ends the reading, which is an error then; the first reason counts.
      const why = error instanceof Error ? error.message : String(error);
      this.stop({ code: error instanceof UsageError ? 2 : 1, why });
    }
  }

  #hasRoom(): boolean {
    return this.#open < MOST_OPEN && this.#openCharacters < MOST_OPEN_CHARACTERS;
  }

  #take(call: Call | InvalidLine): void {
    const { earlier, setting } = this.#parts;
    const { line } = call;
    if ("invalid" in call) {
      if (!earlier.has(line, "")) this.#refuse({ id: line, line }, "ERR_INVALID_LINE", call.invalid);
      return;
    }
    const { id, url, init } = call;
    if (id !== undefined && !this.#ids.add(id)) {
      const message = `the id ${JSON.stringify(id)} is that of an earlier line`;
      if (!earlier.has(line, url)) this.#refuse({ id: line, line, url }, "ERR_DUPLICATE_ID", message);
      return;
    }
    if (earlier.has(id ?? line, url)) return;
    try {
      const ref = setting.limits.match(url, { method: init.method, headers: new Headers(init.headers) });
      this.#enter(call);
      this.#laneOf(ref).push(call);
    } catch (error) {
      const { code, message } = describe(error);
      const hint =
        error instanceof UnknownHostError ? `no limit for ${error.host}: add --limit '${error.host}=RATE'` : message;
      this.#refuse(subjectOf(call), code, hint);
    }
  }

  #laneOf(ref: BucketRef): Lane {
    let lane = this.#lanes.get(ref.bucket);
    if (lane === undefined) {
      const events = {
        accepted: (call: Call, ticket: Ticket) => void this.#receive(call, ticket),
        rejected: (call: Call, error: Error) => {
          const { code, message } = describe(error);
          this.#refuse(subjectOf(call), code, message);
          this.#leave(call);
        },
        contact: (error?: RedisUnavailableError) => this.#watch.contact(error),
      };
      const { client } = this.#parts.connection;
      lane = new Lane(client, ref, (call) => this.#inputOf(call), events, this.#stopping.signal);
      lane.unseen = this.#parts.survey?.byBucket.get(ref.bucket);
      this.#lanes.set(ref.bucket, lane);
    }
    if (lane.unseen !== undefined && lane.unseen > 0) lane.unseen--;
    return lane;
  }

  /** In a named run the same line has the same id each time, so that it is accepted once. */
  #inputOf({ id, line, text, url, init }: Call): CallInput {
    const { name } = this.#parts.given;
    if (name === undefined) return { url, ...init };
    const identity = id === undefined ? [name, line, text] : [name, id];
    return { url, ...init, id: createHash("sha256").update(JSON.stringify(identity)).digest("base64url") };
  }

  async #receive(call: Call, ticket: Ticket): Promise<void> {
    this.#tickets.set(call, ticket);
    // Accepted while the run was being stopped.
    if (this.#stop !== undefined && !this.#durable) ticket.cancel().catch(() => {});
    const { results } = this.#parts;
    try {
      const result = await ticket.result();
      const { status, attempts } = result;
      await results.answer(subjectOf(call), result);
      this.tally.end(attempts, status >= 400 ? `status ${status}` : undefined);
    } catch (error) {
      if (this.#stop !== undefined && error instanceof ClosedError) return;
      if (this.#stop !== undefined && !this.#durable && error instanceof CancelledError) this.tally.dropped++;
      else await this.#failed(call, error);
    }
    this.#tickets.delete(call);
    this.#leave(call);
  }

  async #failed(call: Call, error: unknown): Promise<void> {
    const failure = describe(error);
    const { status, attempts = 1 } = error instanceof UpstreamError ? error : { status: undefined };
    this.tally.end(attempts, status === undefined ? failure.code : `status ${status}`);
    await this.#parts.results.failure(subjectOf(call), failure);
  }

  /** A line that cannot be sent. */
  #refuse(subject: Subject, code: string, message: string): void {
    this.tally.end(0, code);
    if (++this.#reported <= MOST_REPORTED)
      this.#parts.say(`${this.#parts.source.name}, line ${subject.line}: ${message}`);
    if (this.#reported === MOST_REPORTED + 1)
      this.#parts.say("further lines that cannot be sent are in the output only");
    this.#open++;
    void this.#parts.results.failure(subject, { code, message }).then(() => this.#closeOne(0));
  }

  #enter(call: Call): void {
    this.#open++;
    this.#openCharacters += call.text.length;
  }

  #leave(call: Call): void {
    this.#closeOne(call.text.length);
  }

  #closeOne(characters: number): void {
    this.#open--;
    this.#openCharacters -= characters;
    this.#wake();
  }

  async #until(condition: () => boolean): Promise<void> {
    while (!condition()) await new Promise<void>((resolve) => this.#wakers.push(resolve));
  }

  #wake(): void {
    for (const wake of this.#wakers.splice(0)) wake();
  }

  /** Lets what is in flight end. What waits stays in the queue of a named run, and is dropped otherwise. */
  async #windDown(): Promise<void> {
    const closing = this.#parts.connection.worker.close();
    await Promise.all([...this.#lanes.values()].map((lane) => lane.ended()));
    await this.#drop();
    await closing;
    // What waited for a further attempt has gone back into the queue.
    await this.#drop();
    const until = performance.now() + ARRIVAL_MS;
    let before = -1;
    while (this.#tickets.size > 0 && performance.now() < until && (!this.#durable || this.#tickets.size !== before)) {
      before = this.#tickets.size;
      await sleep(250);
    }
  }

  async #drop(): Promise<void> {
    if (this.#durable) return;
    const cancel = async (ticket: Ticket): Promise<unknown> => ticket.cancel().catch(() => false);
    await Promise.all([...this.#tickets.values()].map(cancel));
  }
}

function subjectOf({ id, line, url }: Call): Subject {
  return { id: id ?? line, line, url };
}
