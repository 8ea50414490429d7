import { Redis } from "ioredis";
import { afterAll } from "vitest";
import { encodePolicy } from "../../dist/limits/policy.js";
import { normalizeLimit } from "../../dist/limits/normalize.js";
import { encodeTerms, type Terms } from "../../dist/queue/terms.js";
import type { LimitOptions } from "../../dist/limits/options.js";
import { lua } from "../../dist/redis/lua.generated.js";
import { fields, list, number, text, texts } from "../../dist/redis/reply.js";
import { runScript, type ScriptName } from "../../dist/redis/scripts.js";
import { redisUrl, uniquePrefix } from "./redis.js";
import { until } from "./wait.js";

/** Where injected time begins, in µs. */
export const T0 = 1_800_000_000_000_000;
export const MS = 1000;
export const S = 1_000_000;
export const MINUTE = 60 * S;
export const HOUR = 60 * MINUTE;

export interface Admit {
  readonly now: number;
  readonly ids: readonly string[];
  readonly kind?: "permit" | "request";
  readonly mode?: "all" | "fit";
  readonly client?: string;
  readonly horizon?: number;
  readonly maxWait?: number;
  readonly repeated?: boolean;
  /** The latest time at which it may still be done. */
  readonly until?: number;
  /** What is said of all of them, or of each: priority, cost, key against duplicates. */
  readonly terms?: Partial<Terms> | readonly Partial<Terms>[];
  /** The quota of each producer, as quota.lua reads it. */
  readonly quota?: string;
  readonly lease?: number;
}

export type Admitted =
  | { readonly state: "LATE" | "UNDECLARED" }
  | { readonly state: "DUPLICATE"; readonly of: string }
  | { readonly state: "QUOTA"; readonly at: number | undefined; readonly producer: string }
  | { readonly state: "BLOCKED"; readonly until: number; readonly reason: string }
  | { readonly state: "FULL"; readonly depth: number; readonly capacity: number; readonly roomAt: number }
  | { readonly state: "GRANTED"; readonly slot: number; readonly late: number; readonly concurrency: number }
  | {
      readonly state: "ADDED";
      readonly count: number;
      readonly firstAt: number;
      readonly lastAt: number;
      readonly attended: boolean;
      readonly depth: number;
      /** Of each: id, client, waiting processes. */
      readonly dropped: readonly (readonly string[])[];
      readonly known: readonly number[];
      /** Under which ids these are known. */
      readonly knownAs: readonly string[];
    };

export interface Take {
  readonly now: number;
  readonly worker?: string;
  readonly horizon?: number;
  readonly most?: number;
  readonly token?: string;
  readonly lockMs?: number;
}

export interface TakenCall {
  readonly id: string;
  readonly slot: number;
  readonly cost: number;
  readonly kind: string;
  readonly client: string;
  readonly job: ReadonlyMap<string, string>;
}

export interface Taken {
  readonly state: string;
  readonly again: number;
  readonly calls: readonly TakenCall[];
  /** Of each: why, id, client, waiting processes. */
  readonly dropped: readonly (readonly string[])[];
}

const EXPIRED = '{"ok":false,"code":"ERR_WAIT_EXCEEDED","message":"","limit":"test"}';
const DROPPED = '{"ok":false,"code":"ERR_QUEUE_FULL","message":"","limit":"test"}';
const CANCELLED = '{"ok":false,"code":"ERR_CANCELLED","message":"","limit":"test"}';
export const outcomesOfTest = { EXPIRED, DROPPED, CANCELLED };

/** One bucket, driven script by script with injected time (µs). */
export class Bucket {
  readonly redis: Redis;
  readonly prefix: string;
  readonly name: string;

  constructor(redis: Redis, prefix: string, name: string) {
    this.redis = redis;
    this.prefix = prefix;
    this.name = name;
  }

  key(suffix: string): string {
    return `${this.prefix}:{${this.name}}:${suffix}`;
  }

  /** Channels are common to all of Redis, so that processes get names that no other test has. */
  #address(name: string): string {
    return name === "" ? "" : `${this.prefix}:at:${name}`;
  }

  #names(addresses: readonly string[]): string[] {
    return addresses.map((address) => address.replace(`${this.prefix}:at:`, ""));
  }

  async run(script: ScriptName, args: readonly (string | number | Buffer)[]): Promise<readonly unknown[]> {
    const reply = await runScript(this.redis, script, this.key("gate"), args);
    return Array.isArray(reply) ? list(reply) : [reply];
  }

  async declare(options: LimitOptions, now: number = T0): Promise<void> {
    const policy = { ...encodePolicy(normalizeLimit("test", "test", options)), cluster: "0" };
    await this.run("declare", [JSON.stringify(policy), now]);
  }

  async admit(call: Admit): Promise<Admitted> {
    const { now, ids, kind = "request", mode = "all", client = "", horizon = 20 * MS, maxWait = "" } = call;
    const { terms = {}, quota = "" } = call;
    const said = (i: number): Partial<Terms> | undefined => ("at" in terms ? terms[i] : terms);
    const termsOf = (i: number): string =>
      encodeTerms({ priority: "normal", cost: 1, maxWaitMs: undefined, ...said(i) });
    const { repeated = false, until: latest = "", lease = 15 * S } = call;
    const head = [
      now,
      latest,
      mode,
      kind,
      this.#address(client),
      horizon,
      maxWait,
      repeated ? "1" : "",
      60_000,
      DROPPED,
      lease,
      quota,
    ];
    const reply = await this.run("admit", [...head, ...ids.flatMap((id, i) => [id, `{"of":"${id}"}`, termsOf(i)])]);
    const admitted = readAdmitted(reply);
    if (admitted.state !== "ADDED") return admitted;
    return { ...admitted, dropped: admitted.dropped.map((one) => this.#names(one)) };
  }

  async take(take: Take): Promise<Taken> {
    const { now, worker = "worker", horizon = 20 * MS, most = 64, token = worker, lockMs = 15_000 } = take;
    const reply = await this.run("take", [now, this.#address(worker), horizon, most, token, lockMs, 60_000, EXPIRED]);
    if (text(reply[0]) === "UNDECLARED") return { state: "UNDECLARED", again: 0, calls: [], dropped: [] };
    return {
      state: text(reply[0]),
      again: number(reply[2]),
      calls: list(reply[3]).map((call) => this.#call(call)),
      dropped: list(reply[4]).map((one) => this.#names(texts(one))),
    };
  }

  #call(call: unknown): TakenCall {
    const [id, slot, cost, kind, rest] = list(call);
    const isRequest = text(kind) === "request";
    const [client = ""] = isRequest ? [] : this.#names([text(rest)]);
    const job = isRequest ? fields(rest) : new Map<string, string>();
    return { id: text(id), slot: number(slot), cost: number(cost), kind: text(kind), client, job };
  }

  /** The slot, or "EXPIRED". */
  async reserve(now: number, id: string, deadline: number | "" = "", cost = 1): Promise<number | "EXPIRED"> {
    const reply = await this.run("reserve", [now, "next", deadline, 0, id, "", cost]);
    return text(reply[0]) === "EXPIRED" ? "EXPIRED" : number(list(reply[2])[0]);
  }

  async slot(now: number, id: string, mode: "next" | "confirm", held: number | "", cost = 1): Promise<number> {
    return number(list((await this.run("reserve", [now, mode, "", 0, id, held, cost]))[2])[0]);
  }

  /** What a call has cost in fact that started in this slot and was taken to cost so much. */
  async settle(now: number, id: string, slot: number, reserved: number, actual: number): Promise<void> {
    await this.run("settle", [now, id, slot, reserved, actual]);
  }

  /** A start was later than its slot by so much. */
  async late(now: number, id: string, slot: number, excess: number, shifted = 0): Promise<void> {
    await this.run("late", [now, id, slot, excess, shifted]);
  }

  /** Whether one more retry may be made, where each first attempt allows so many. */
  async budget(now: number, ratio: number): Promise<boolean> {
    return number((await this.run("budget", [now, ratio]))[2]) === 1;
  }

  async giveBack(now: number, id: string, held: number): Promise<void> {
    await this.run("reserve", [now, "return", "", 0, id, held, 1]);
  }

  /** The time until which it holds, or 0; for clear, what was dropped. */
  async control(now: number, operation: string, duration: number | "" = "", detail = ""): Promise<number> {
    return number((await this.run("control", [now, operation, duration, detail]))[2]);
  }

  async set(now: number, patch: Readonly<Record<string, string | number>>, duration: number | "" = ""): Promise<void> {
    await this.control(now, "set", duration, JSON.stringify(patch));
  }

  async clear(now: number): Promise<readonly (readonly string[])[]> {
    return list((await this.run("control", [now, "clear", 60_000, CANCELLED]))[3]).map(texts);
  }

  /** The processes that wait for the result, or "LOST". */
  async finish(
    now: number,
    id: string,
    {
      token = "worker",
      end = "completed",
      body = "",
    }: { token?: string; end?: "completed" | "failed"; body?: string } = {},
  ): Promise<readonly string[] | "LOST"> {
    const outcome = JSON.stringify({ ok: end === "completed", by: token });
    const reply = await this.run("finish", [
      now,
      id,
      token,
      end,
      end === "failed" ? "why" : "",
      1000,
      60_000,
      outcome,
      body,
    ]);
    return text(reply[0]) === "LOST" ? "LOST" : texts(reply[2]);
  }

  async requeue(now: number, id: string, token = "worker", attempts = 1, unsent = ""): Promise<string> {
    return text((await this.run("requeue", [now, id, token, attempts, attempts, unsent]))[0]);
  }

  /** Puts a call whose attempts have all failed aside for so many ms. */
  async redeliver(
    now: number,
    id: string,
    delayMs: number,
    { token = "worker", attempts = 3, round = 1 }: { token?: string; attempts?: number; round?: number } = {},
  ): Promise<string> {
    return text((await this.run("redeliver", [now, id, token, delayMs, attempts, round]))[0]);
  }

  /** Ids of the calls to be redelivered later, the next one first. */
  async aside(): Promise<string[]> {
    return this.redis.zrange(this.key("delayed"), 0, "-1");
  }

  async release(now: number, ...ids: readonly string[]): Promise<void> {
    await this.run("release", [now, ...ids]);
  }

  async cancel(now: number, id: string): Promise<string> {
    return text((await this.run("cancel", [now, id, 60_000, CANCELLED]))[0]);
  }

  /** Loses the locks of these calls, as when their worker falls silent. */
  async unlock(...ids: readonly string[]): Promise<void> {
    if (ids.length > 0) await this.redis.del(...ids.map((id) => this.key(`${id}:lock`)));
  }

  /** Runs the stalled check as if its interval had passed, twice: BullMQ marks first, and puts back the next time. */
  async recover(now: number): Promise<{ recovered: readonly string[]; dropped: readonly (readonly string[])[] }> {
    const dropped: (readonly string[])[] = [];
    const recovered: string[] = [];
    await this.redis.del(this.key("stalled"));
    for (let pass = 0; pass < 2; pass++) {
      await this.redis.del(this.key("stalled-check"));
      const reply = await this.run("recover", [now, 60_000, 60_000, EXPIRED]);
      recovered.push(...texts(reply[2]));
      dropped.push(...list(reply[3]).map(texts));
    }
    return { recovered, dropped };
  }

  async retryFailed(now: number, most = 1000): Promise<number> {
    return number((await this.run("failed", [now, "retry", most]))[2]);
  }

  async stats(now: number): Promise<{
    depth: number;
    waiting: number;
    active: number;
    nextSlot: number;
    expectedAt: number;
    redelivering: number;
  }> {
    const reply = await this.run("stats", [now]);
    const [, , depth, waiting, active, , next, expected] = reply;
    return {
      redelivering: number(reply[12]),
      depth: number(depth),
      waiting: number(waiting),
      active: number(active),
      nextSlot: number(next),
      expectedAt: number(expected),
    };
  }

  async depth(now: number): Promise<number> {
    return (await this.stats(now)).depth;
  }

  /** Ids of the waiting calls, the next one first. */
  async waiting(): Promise<string[]> {
    const { redis } = this;
    const line = (await redis.lrange(this.key("wait"), 0, -1)).toReversed();
    const ranked = await redis.zrange(this.key("prioritized"), 0, "-1", "WITHSCORES");
    const ofRank = (rank: number): string[] =>
      ranked.filter((_id, i) => i % 2 === 0 && Math.floor(Number(ranked[i + 1]) / 2 ** 32) === rank);
    return [...ofRank(1), ...line, ...ofRank(2)];
  }

  async field(name: string): Promise<string | null> {
    return this.redis.hget(this.key("gate"), name);
  }

  /** Which worker has the turn, or "". */
  async turn(): Promise<string> {
    return this.#names([(await this.field("turn")) ?? ""])[0] ?? "";
  }

  /** The idle workers, the one that has been idle longest first. */
  async idle(): Promise<string[]> {
    return this.#names(await this.redis.zrange(this.key("idle"), 0, "-1"));
  }

  async again(): Promise<number> {
    return Number((await this.field("again")) ?? 0);
  }

  /** The stored outcome of a durable call, or undefined. */
  async result(id: string): Promise<unknown> {
    const stored = await this.redis.hget(this.key(`result:${id}`), "m");
    return stored === null ? undefined : JSON.parse(stored);
  }
}

function readAdmitted(reply: readonly unknown[]): Admitted {
  const state = text(reply[0]);
  if (state === "LATE" || state === "UNDECLARED") return { state };
  if (state === "QUOTA") {
    return { state, at: text(reply[2]) === "" ? undefined : number(reply[2]), producer: text(reply[3]) };
  }
  if (state === "DUPLICATE") return { state, of: text(reply[2]) };
  if (state === "BLOCKED") return { state, until: number(reply[2]), reason: text(reply[3]) };
  if (state === "FULL") {
    return {
      state,
      depth: number(reply[2]),
      capacity: number(reply[3]),
      roomAt: text(reply[4]) === "" ? Infinity : number(reply[4]),
    };
  }
  if (state === "GRANTED") {
    return { state, slot: number(reply[2]), late: number(reply[3]), concurrency: number(reply[5]) };
  }
  if (state !== "ADDED") throw new TypeError(`Expected a reply of admit, got ${state}`);
  return {
    state,
    count: number(reply[2]),
    firstAt: number(reply[3]),
    lastAt: number(reply[4]),
    attended: number(reply[5]) === 1,
    depth: number(reply[6]),
    dropped: list(reply[7]).map(texts),
    known: list(reply[8]).map(number),
    knownAs: texts(reply[9]),
  };
}

const connections: Redis[] = [];

function connection(): Redis {
  const redis = new Redis(redisUrl());
  connections.push(redis);
  return redis;
}

let shared: { readonly redis: Redis; readonly prefix: string } | undefined;
let buckets = 0;

/** Makes the server know all scripts: one that it does not know is sent twice, and overtaken by those it does know. */
async function acquaint(redis: Redis, prefix: string): Promise<void> {
  const nobody = new Bucket(redis, prefix, "nobody");
  for (const name of Object.keys(lua) as ScriptName[]) {
    if (name !== "declare") await nobody.run(name, [T0, "", "", "", "0", "0", "0"]).catch(() => {});
  }
}

async function share(): Promise<{ readonly redis: Redis; readonly prefix: string }> {
  if (shared !== undefined) return shared;
  shared = { redis: connection(), prefix: uniquePrefix() };
  await acquaint(shared.redis, shared.prefix);
  return shared;
}

/** A bucket that no other test has, declared at {@link T0}. */
export async function bucketOf(options: LimitOptions): Promise<Bucket> {
  const { redis, prefix } = await share();
  const bucket = new Bucket(redis, prefix, `b${buckets++}`);
  await bucket.declare(options);
  return bucket;
}

/** Is alive for the scripts under these names, and hears what they are told. */
export interface Listener extends AsyncDisposable {
  /** What was said so far, and to whom; "all" is what is said to all workers. */
  heard(): Promise<readonly { to: string; message: string }[]>;
  /** Forgets what was said so far. */
  clear(): Promise<void>;
}

export async function listen(...names: readonly string[]): Promise<Listener> {
  const { redis: other, prefix } = await share();
  const redis = connection();
  const channels = new Map(names.map((name) => [name === "all" ? `${prefix}:wake` : `${prefix}:at:${name}`, name]));
  const heard: { to: string; message: string }[] = [];
  const flush = `${prefix}:flush:${connections.length}`;
  let [sent, flushed] = [0, 0];
  redis.on("message", (channel, message) => {
    if (channel === flush) flushed++;
    else heard.push({ to: channels.get(channel) ?? channel, message });
  });
  await redis.subscribe(flush, ...channels.keys());
  // Messages arrive in the order in which they were published.
  const complete = async (): Promise<void> => {
    sent++;
    await other.publish(flush, "");
    await until(() => flushed === sent);
  };
  return {
    async heard() {
      await complete();
      return heard;
    },
    async clear() {
      await complete();
      heard.splice(0);
    },
    // Waits for the server, so that the next test does not find this one alive.
    [Symbol.asyncDispose]: async () => {
      await redis.quit();
    },
  };
}

afterAll(() => {
  for (const redis of connections.splice(0)) redis.disconnect();
});
