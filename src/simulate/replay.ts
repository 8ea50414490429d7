import type { SpillwayErrorCode } from "../errors.js";
import type { BucketRef } from "../limits/define.js";
import { PERMIT_MAX_WAIT_MS } from "../limits/options.js";
import { encodePolicy } from "../limits/policy.js";
import { admitHead, refusalOf } from "../queue/admit.js";
import { takeArgs } from "../queue/take.js";
import { encodeTerms, type Terms } from "../queue/terms.js";
import { answered, LONG_PATIENCE_MS } from "../redis/answer.js";
import { list, number, text } from "../redis/reply.js";
import { runScript, type ScriptName } from "../redis/scripts.js";
import type { Session } from "../redis/session.js";

/** A call of one bucket. Times are in µs. */
export interface BucketCall {
  readonly index: number;
  readonly at: number;
  readonly durationMicros: number;
  readonly terms: Terms;
}

/** What happens to calls, in the order of their times. */
export interface BucketEvents {
  waits(call: BucketCall): void;
  /** It starts: `at` once, or after it has waited. */
  sent(call: BucketCall, at: number): void;
  /** It fails: at once, or after it has waited. */
  refused(call: BucketCall, at: number, code: SpillwayErrorCode): void;
}

/** Few enough that Redis serves others in between: a step takes tens of µs. */
const CHUNK = 100;
const MOST_STEPS = 250;
const MOST_TAKEN = 64;
/** A hundred years: nobody dies in a simulation. */
const LEASE_MS = 100 * 366 * 86_400_000;

/** One bucket in virtual time. */
export class BucketReplay {
  readonly #session: Session;
  readonly #ref: BucketRef;
  readonly #events: BucketEvents;
  readonly #open = new Map<string, BucketCall>();
  readonly #admit: string;
  readonly #take: string;
  #isDeclared = false;
  #due = "";

  constructor(session: Session, ref: BucketRef, events: BucketEvents) {
    this.#session = session;
    this.#ref = ref;
    this.#events = events;
    const shared = { address: session.address, horizon: 0, leaseMs: LEASE_MS };
    const maxWaitMs = ref.limit.maxWaitMs ?? PERMIT_MAX_WAIT_MS;
    const admission = { ...shared, until: "", mode: "all", kind: "permit", maxWaitMs, repeated: false } as const;
    this.#admit = JSON.stringify(admitHead(ref, admission).map(String));
    // Nobody listens there: no worker is woken, neither of ours nor of others.
    const taking = {
      ...shared,
      address: `${session.prefix}:at:nobody`,
      most: MOST_TAKEN,
      token: "-",
      latest: "",
    } as const;
    this.#take = JSON.stringify(takeArgs(ref, taking).map(String));
  }

  /** Plays calls, in the order of their times, and all that is due before the last of them. */
  async play(calls: readonly BucketCall[], signal: AbortSignal | undefined): Promise<void> {
    await this.#declare(calls[0]?.at ?? 0);
    for (let done = 0; done < calls.length;) {
      signal?.throwIfAborted();
      done += await this.#step(calls.slice(done, done + CHUNK), "");
    }
  }

  /** Goes on until nothing waits. */
  async end(signal: AbortSignal | undefined): Promise<void> {
    while (this.#due !== "") {
      signal?.throwIfAborted();
      await this.#step([], Number.MAX_SAFE_INTEGER);
    }
  }

  async erase(): Promise<void> {
    await this.#run("erase", []);
  }

  async #declare(now: number): Promise<void> {
    if (this.#isDeclared) return;
    this.#isDeclared = true;
    const policy = { ...encodePolicy(this.#ref.limit), cluster: this.#session.cluster ? "1" : "0" };
    await this.#run("declare", [JSON.stringify(policy), now]);
  }

  /** How many of the calls have come. */
  async #step(calls: readonly BucketCall[], till: number | ""): Promise<number> {
    const each = calls.flatMap((call) => {
      const id = `${call.index}.${call.durationMicros}`;
      this.#open.set(id, call);
      return [call.at, id, encodeTerms(call.terms)];
    });
    const quota = this.#ref.limit.admit?.text ?? "";
    const args = [this.#due, till, MOST_STEPS, this.#admit, this.#take, quota, ...each];
    const reply = list(await this.#run("replay", args));
    this.#due = text(reply[1]);
    const events = list(reply[2]);
    for (let i = 0; i < events.length; i += 3) this.#hear(text(events[i]), text(events[i + 1]), events[i + 2]);
    return number(reply[0]);
  }

  #hear(what: string, id: string, detail: unknown): void {
    const call = this.#open.get(id);
    if (call === undefined) throw new TypeError(`Expected an event of a simulated call, got "${what}" of ${id}`);
    if (what === "waits") return this.#events.waits(call);
    this.#open.delete(id);
    if (what === "refused") this.#events.refused(call, call.at, refusalOf(this.#ref, list(detail)).code);
    else if (what === "dropped") this.#events.refused(call, number(detail), "ERR_QUEUE_FULL");
    else if (what === "expired") this.#events.refused(call, number(detail), "ERR_WAIT_EXCEEDED");
    else if (what === "sent") this.#events.sent(call, number(detail));
    else throw new TypeError(`Expected a simulated call to be sent or refused, but it is "${what}"`);
  }

  async #run(script: ScriptName, args: readonly (string | number)[]): Promise<unknown> {
    const commands = await this.#session.commands(LONG_PATIENCE_MS);
    return answered(runScript(commands, script, this.#session.key(this.#ref.bucket), args), LONG_PATIENCE_MS);
  }
}
