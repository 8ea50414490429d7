import type { SpillwayErrorCode } from "../errors.js";
import type { BucketRef } from "../limits/define.js";
import { onAbort } from "../redis/abort.js";
import type { Session } from "../redis/session.js";
import { type Arrival, ArrivalReader } from "./arrival.js";
import { type BucketCall, BucketReplay } from "./replay.js";
import type { SimulatedCall, Simulation } from "./simulate.js";
import { BucketTally, type LimitSummary, Tally } from "./summary.js";
import { TimelineBuilder } from "./timeline.js";

/** Arrivals that are read before what they lead to is computed. */
const BATCH = 10_000;
/** Buckets that are played at the same time. */
const AT_ONCE = 64;
/** A bucket, with the calls that have not been played yet. */
interface Lane {
  readonly replay: BucketReplay;
  readonly calls: BucketCall[];
}

/** One simulation. */
export class Run {
  readonly #session: Session;
  readonly #reader: ArrivalReader;
  readonly #tell: (call: SimulatedCall) => void;
  readonly #calls: SimulatedCall[] = [];
  readonly #lanes = new Map<string, Lane>();
  readonly #filled = new Set<Lane>();
  readonly #tallies = new Map<string, Tally>();
  readonly #unknown = new Tally();
  readonly #timeline = new TimelineBuilder();
  #first = Infinity;
  #last = -Infinity;

  constructor(session: Session, onCall: ((call: SimulatedCall) => void) | undefined) {
    this.#session = session;
    this.#reader = new ArrivalReader(session.limits);
    this.#tell = onCall ?? ((call) => void (this.#calls[call.index] = call));
  }

  async play(arrivals: Iterable<Arrival> | AsyncIterable<Arrival>, signal: AbortSignal | undefined): Promise<void> {
    let read = 0;
    const mayIdle = signal !== undefined && Symbol.asyncIterator in arrivals;
    for await (const arrival of mayIdle ? endedBy(signal, arrivals) : arrivals) {
      this.#offer(arrival);
      if (++read % BATCH === 0) await this.#play(signal);
    }
    await this.#play(signal);
    await this.#each(this.#lanes.values(), ({ replay }) => replay.end(signal));
  }

  async #play(signal: AbortSignal | undefined): Promise<void> {
    const filled = [...this.#filled];
    this.#filled.clear();
    await this.#each(filled.values(), ({ replay, calls }) => replay.play(calls.splice(0), signal));
  }

  /** Waits for all even when one fails: what is still under way would come after the keys are deleted. */
  async #each(lanes: Iterator<Lane>, act: (lane: Lane) => Promise<void>): Promise<void> {
    const worker = async (): Promise<void> => {
      for (let next = lanes.next(); next.done !== true; next = lanes.next()) await act(next.value);
    };
    const outcomes = await Promise.allSettled(Array.from({ length: AT_ONCE }, worker));
    for (const outcome of outcomes) if (outcome.status === "rejected") throw outcome.reason;
  }

  async erase(): Promise<void> {
    await this.#each(this.#lanes.values(), ({ replay }) => replay.erase());
  }

  #offer(arrival: Arrival): void {
    const { index, at, durationMicros, target } = this.#reader.read(arrival);
    this.#first = Math.min(this.#first, at);
    this.#last = Math.max(this.#last, at);
    this.#timeline.offered(at);
    if (target === undefined) {
      this.#unknown.offered++;
      this.#refuse({ index, at }, at, "ERR_UNKNOWN_HOST", undefined, this.#unknown);
      return;
    }
    const { ref, terms } = target;
    this.#tallyOf(ref).offered++;
    const lane = this.#laneOf(ref);
    lane.calls.push({ index, at, durationMicros, terms });
    this.#filled.add(lane);
  }

  #tallyOf({ limit }: BucketRef): Tally {
    const tally = this.#tallies.get(limit.name) ?? new Tally();
    this.#tallies.set(limit.name, tally);
    return tally;
  }

  #laneOf(ref: BucketRef): Lane {
    const known = this.#lanes.get(ref.bucket);
    if (known !== undefined) return known;
    const tally = this.#tallyOf(ref);
    const counts = new BucketTally(ref.limit);
    tally.buckets.push(counts);
    const waiting = new Set<number>();
    const leave = ({ index }: BucketCall): void => void (waiting.delete(index) && counts.waits(-1));
    const replay = new BucketReplay(this.#session, ref, {
      waits: ({ index }) => {
        waiting.add(index);
        counts.waits(1);
      },
      sent: (call, at) => {
        leave(call);
        counts.starts(at, ref.limit.rate.counts === "cost" ? call.terms.cost : 1);
        this.#send(call, at, ref, tally);
      },
      refused: (call, at, code) => {
        leave(call);
        this.#refuse(call, at, code, ref, tally);
      },
    });
    const lane: Lane = { replay, calls: [] };
    this.#lanes.set(ref.bucket, lane);
    return lane;
  }

  #send({ index, at }: BucketCall, start: number, { limit, bucket }: BucketRef, tally: Tally): void {
    const waited = (start - at) / 1000;
    tally.sent(waited);
    this.#timeline.sent(at, start);
    this.#last = Math.max(this.#last, start);
    const given = (micros: number): number => this.#reader.given(micros);
    this.#tell({ index, at: given(at), limit: limit.name, bucket, outcome: "sent", startedAt: given(start), waited });
  }

  #refuse(
    { index, at }: Pick<BucketCall, "index" | "at">,
    end: number,
    outcome: SpillwayErrorCode,
    ref: BucketRef | undefined,
    tally: Tally,
  ): void {
    tally.refused(outcome);
    this.#timeline.refused(at, end);
    this.#last = Math.max(this.#last, end);
    const waited = (end - at) / 1000;
    const { limit, bucket } = ref ?? {};
    this.#tell({
      index,
      at: this.#reader.given(at),
      limit: limit?.name,
      bucket,
      outcome,
      startedAt: undefined,
      waited,
    });
  }

  result(): Simulation {
    const limits: Record<string, LimitSummary> = {};
    for (const declared of this.#session.limits.names) {
      const limit = this.#session.limits.get(declared);
      const tally = limit && this.#tallies.get(limit.name);
      if (limit !== undefined && tally !== undefined) limits[limit.name] = tally.of(limit);
    }
    return {
      calls: this.#calls,
      total: Tally.all([...this.#tallies.values(), this.#unknown]),
      limits,
      span: this.#last < this.#first ? 0 : (this.#last - this.#first) / 1000,
      timeline: this.#timeline.build((micros) => this.#reader.given(micros)),
    };
  }
}

/** The same arrivals, but whoever waits for the next one is told when the signal aborts: it may never come. */
async function* endedBy(signal: AbortSignal, arrivals: AsyncIterable<Arrival>): AsyncGenerator<Arrival> {
  const source = arrivals[Symbol.asyncIterator]();
  const next = async (): Promise<IteratorResult<Arrival>> => {
    signal.throwIfAborted();
    let stopListening = (): void => {};
    const aborted = new Promise<never>((_resolve, reject) => {
      stopListening = onAbort(signal, () => reject(signal.reason));
    });
    return Promise.race([source.next(), aborted]).finally(stopListening);
  };
  try {
    for (let one = await next(); one.done !== true; one = await next()) yield one.value;
  } finally {
    // Not waited for, for the same reason.
    source.return?.().catch(() => {});
  }
}
