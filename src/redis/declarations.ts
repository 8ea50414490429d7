import type { BucketRef } from "../limits/define.js";
import { encodePolicy } from "../limits/policy.js";
import type { Reporter } from "../observe/events.js";
import type { Connection } from "./connect.js";
import { runScript } from "./scripts.js";

/** A bucket announces itself this often while it is used, so that workers which start later find it. */
const ANNOUNCE_MS = 60_000;

/** Forgetting that a bucket is declared costs one command; remembering all that ever were, memory without bound. */
const MOST_DECLARED = 10_000;

/** Where buckets are kept, and how late it is there. */
interface Home {
  readonly bucketsKey: string;
  readonly cluster: boolean;
  readonly report: Reporter;
  key(bucket: string): string;
  milliseconds(): number;
}

/** What this process has told the server of its buckets: their policies, and that they are in use. */
export class Declarations {
  readonly #home: Home;
  /** When each was announced. */
  readonly #declared = new Map<string, number>();
  readonly #underWay = new Map<string, Promise<void>>();

  constructor(home: Home) {
    this.#home = home;
  }

  /** Unless it has been done. Nobody waits: what is sent behind it on the same connection finds it done, as a rule. */
  once(ref: BucketRef, commands: Connection): void {
    const announced = this.#declared.get(ref.bucket);
    if (announced !== undefined && this.#home.milliseconds() - announced < ANNOUNCE_MS) return;
    this.#announce(ref, commands);
    if (announced === undefined) this.#declare(ref, commands).catch((error: unknown) => this.#forget(ref, error));
  }

  /** Whatever it was told, the server does not know the bucket. Once for all calls that wait for it. */
  anew(ref: BucketRef, commands: Connection): Promise<void> {
    const underWay = this.#underWay.get(ref.bucket);
    if (underWay !== undefined) return underWay;
    this.#announce(ref, commands);
    const declaring = this.#declare(ref, commands).finally(() => this.#underWay.delete(ref.bucket));
    this.#underWay.set(ref.bucket, declaring);
    return declaring;
  }

  #announce(ref: BucketRef, commands: Connection): void {
    const now = this.#home.milliseconds();
    if (this.#declared.size >= MOST_DECLARED) this.#declared.clear();
    this.#declared.set(ref.bucket, now);
    commands.zadd(this.#home.bucketsKey, now, ref.bucket).catch((error: unknown) => this.#forget(ref, error));
  }

  #forget(ref: BucketRef, error: unknown): void {
    this.#declared.delete(ref.bucket);
    this.#home.report.connection(error);
  }

  async #declare(ref: BucketRef, commands: Connection): Promise<void> {
    const policy = { ...encodePolicy(ref.limit), cluster: this.#home.cluster ? "1" : "0" };
    await runScript(commands, "declare", this.#home.key(ref.bucket), [JSON.stringify(policy)]);
  }
}
