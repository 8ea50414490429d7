import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { Redis } from "ioredis";
import { defineLimits, type LimitOptions } from "spillway";
import { afterEach, describe, expect, test } from "vitest";
import { awaitSlot } from "../../dist/gate/line.js";
import { reserve, type Slot } from "../../dist/gate/slot.js";
import type { BucketRef } from "../../dist/limits/define.js";
import { type Context, openContext } from "../../dist/redis/context.js";
import { number } from "../../dist/redis/reply.js";
import { startChild } from "../helpers/child.js";
import { blockEventLoop } from "../helpers/load.js";
import { redisUrl, uniquePrefix } from "../helpers/redis.js";
import { bounded, until } from "../helpers/wait.js";

const MS = 1000;

const opened: Desk[] = [];
afterEach(async () => {
  for (const desk of opened.splice(0)) await desk.close();
});

interface Call {
  /** Ends the wait. */
  leave(reason?: Error): void;
  /** The slot in which it started; rejects when it did not. */
  readonly slot: Promise<Slot>;
}

/** One bucket, and the calls that wait for their start in it. */
class Desk {
  readonly prefix: string = uniquePrefix();
  readonly context: Context;
  readonly #limits;
  /** The names of the calls that have ended, in that order. */
  readonly ended: string[] = [];
  /** What was asked of the gate since the last look, and when, in µs of the server's clock. */
  readonly asked: { mode: string; at: number }[] = [];

  constructor(options: LimitOptions, redis: string = redisUrl()) {
    this.#limits = defineLimits({ line: options });
    this.context = openContext({ redis, prefix: this.prefix, limits: this.#limits });
    const { session } = this.context;
    const run = session.run.bind(session);
    session.run = (ref, script, args, patience) => {
      if (script === "reserve") this.asked.push({ mode: String(args[1]), at: session.clock.now() });
      return run(ref, script, args, patience);
    };
    opened.push(this);
  }

  /** A new one each time. */
  get ref(): BucketRef {
    return this.#limits.resolve("line");
  }

  get now(): number {
    return this.context.session.clock.now();
  }

  reserve(id: string): Promise<Slot> {
    return reserve(this.context, this.ref, { id, cost: 1 });
  }

  /** Slots for these calls, in order. */
  async slots(...ids: readonly string[]): Promise<Slot[]> {
    return Promise.all(ids.map((id) => this.reserve(id)));
  }

  /** A slot that is now is used at once; these come later, but not so late that they would have to be confirmed. */
  async missable(...ids: readonly string[]): Promise<Slot[]> {
    await this.pause(45);
    return this.slots(...ids);
  }

  /** How far it is to so many ms after a slot. */
  msTo(slot: Slot | undefined, after: number): number {
    if (slot === undefined) throw new Error("No slot");
    return (slot.at - this.now) / MS + after;
  }

  /** When it ends. */
  async pause(ms: number): Promise<number> {
    return number((await this.context.session.run(this.ref, "control", ["", "pause", ms * MS, "test"]))[2]);
  }

  /** From when on a further call could start. */
  async next(): Promise<number> {
    return number((await this.context.session.run(this.ref, "stats", [""]))[6]);
  }

  wait(name: string, slot: Slot | undefined, deadline?: number): Call {
    if (slot === undefined) throw new Error(`No slot for ${name}`);
    const abort = new AbortController();
    const call = { ref: this.ref, id: name, deadline, signal: abort.signal };
    const started = awaitSlot(this.context, call, slot).finally(() => this.ended.push(name));
    // Where nobody looks, it does not matter.
    started.catch(() => {});
    return {
      leave: (reason) => abort.abort(reason),
      slot: bounded(started, 10_000, `the start of ${name}`),
    };
  }

  async close(): Promise<void> {
    await this.context.close();
  }
}

const left = new Error("left");
const ids = (slots: readonly Slot[]): string[] => slots.map(({ id }) => id);

/** Makes the gate's script fail for this bucket. */
async function spoil(desk: Desk): Promise<void> {
  const redis = new Redis(redisUrl());
  const key = `${desk.prefix}:{${desk.ref.bucket}}:slots`;
  await redis.multi().del(key).set(key, "spoilt").exec();
  redis.disconnect();
}

/** The shared Redis, `ms` away in each direction. */
async function startFar(ms: number): Promise<{ readonly url: string } & AsyncDisposable> {
  const { hostname, port } = new URL(redisUrl());
  const sockets: Socket[] = [];
  const pass = (from: Socket, to: Socket): void => {
    sockets.push(from);
    from.setNoDelay(true).on("error", () => {});
    from.on("data", (data) => setTimeout(() => to.write(data), ms)).on("close", () => to.destroy());
  };
  const server = createServer((socket) => {
    const there = connect(Number(port || 6379), hostname);
    pass(socket, there);
    pass(there, socket);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  const close = async (): Promise<void> => {
    for (const socket of sockets) socket.destroy();
    server.close();
  };
  return {
    url: `redis://127.0.0.1:${typeof address === "object" ? address?.port : ""}`,
    [Symbol.asyncDispose]: close,
  };
}

/** The most of these times in any window of so many µs. */
const mostWithin = (times: readonly number[], window: number): number =>
  Math.max(...times.map((from) => times.filter((at) => at >= from && at < from + window).length));

describe("order", () => {
  test("calls start in the order in which they came, each in the next slot", async () => {
    const desk = new Desk({ rate: "50/s", lateness: 0 });
    await desk.pause(200);
    const [a, b, c] = await desk.slots("a", "b", "c");
    const calls = [desk.wait("1", c), desk.wait("2", a), desk.wait("3", b)];
    expect(ids(await Promise.all(calls.map(({ slot }) => slot)))).toEqual(["a", "b", "c"]);
    expect(desk.ended).toEqual(["1", "2", "3"]);
  });

  test("also when their slots are over before they are looked at", async () => {
    const desk = new Desk({ rate: "1000/s", lateness: 0 });
    const names = Array.from({ length: 40 }, (_, i) => String(i));
    const slots = await desk.slots(...names);
    const calls = names.map((name, i) => desk.wait(name, slots[names.length - 1 - i]));
    blockEventLoop(100);
    await Promise.all(calls.map(({ slot }) => slot));
    expect(desk.ended).toEqual(names);
  });

  test("one that comes later, with an earlier slot, overtakes nobody", async () => {
    const desk = new Desk({ rate: "50/s", lateness: 0 });
    await desk.pause(200);
    const [a, b] = await desk.slots("a", "b");
    const first = desk.wait("1", b);
    const second = desk.wait("2", a);
    expect(ids([await first.slot, await second.slot])).toEqual(["a", "b"]);
    expect(desk.ended).toEqual(["1", "2"]);
  });

  test("buckets do not wait for each other", async () => {
    const desk = new Desk({ rate: "1/m", lateness: 0 });
    const other = new Desk({ rate: "1/m", lateness: 0 });
    const [, far] = await desk.slots("now", "far");
    const [near] = await other.slots("near");
    const waits = desk.wait("1", far);
    await other.wait("2", near).slot;
    waits.leave(left);
    await expect(waits.slot).rejects.toBe(left);
  });
});

describe("a slot that is missed", () => {
  test("is given up for another one, and nobody is overtaken", async () => {
    const desk = new Desk({ rate: { limit: 5, per: "100ms" }, lateness: "10ms" });
    const names = Array.from({ length: 15 }, (_, i) => String(i));
    const slots = await desk.missable(...names);
    let over = 0;
    const starts = names.map((name, i) => desk.wait(name, slots[i]).slot);
    // Whatever starts at all starts after this.
    blockEventLoop(desk.msTo(slots[0], 80));
    over = desk.now;
    const used = (await Promise.all(starts)).map(({ at }) => at);
    expect(desk.ended).toEqual(names);
    // The process keeps within 6 ms; 3 ms for what the clocks may differ.
    for (const at of used) expect(at).toBeGreaterThanOrEqual(over - 9 * MS);
    expect(mostWithin(used, 100 * MS)).toBeLessThanOrEqual(5);
    expect(used).toEqual(used.toSorted((x, y) => x - y));
    expect(desk.asked.filter(({ mode }) => mode === "next").length).toBeGreaterThan(names.length);
  });

  test("is replaced by one that can be reached, however far away Redis is", async () => {
    await using far = await startFar(25);
    const desk = new Desk({ rate: "1000/s", lateness: "10ms" }, far.url);
    const [a] = await desk.slots("a");
    expect((await desk.wait("1", a && { ...a, at: a.at - 100 * MS }).slot).at).toBeGreaterThan(a?.at ?? 0);
    // A slot that lay nearer than the reply takes would be missed, and the one after it, for ever.
    expect(desk.asked.filter(({ mode }) => mode === "next").length).toBeLessThanOrEqual(10);
  });

  test("is used, however late, when the limit asks for the exact average rate", async () => {
    const desk = new Desk({ rate: "1000/s", lateness: 0 });
    const [a] = await desk.missable("a");
    const call = desk.wait("1", a);
    blockEventLoop(desk.msTo(a, 20));
    expect(await call.slot).toEqual(a);
  });

  test("is replaced by a slot that comes before those reserved later, for the first call", async () => {
    const desk = new Desk({ rate: "50/s", lateness: "10ms" });
    const [a] = await desk.missable("a");
    const calls = [desk.wait("1", a)];
    blockEventLoop(desk.msTo(a, 20));
    // Asked after the gate has been asked for another slot: the call that joins here comes second in both lines.
    await until(() => desk.asked.filter(({ mode }) => mode === "next").length === 2);
    const [b] = await desk.slots("b");
    calls.push(desk.wait("2", b));
    await Promise.all(calls.map(({ slot }) => slot));
    expect(desk.ended).toEqual(["1", "2"]);
  });
});

describe("a call that leaves", () => {
  test("gives the newest slot back, and the others move up", async () => {
    const desk = new Desk({ rate: "50/s", lateness: 0 });
    const reopens = await desk.pause(500);
    const [a, b, c] = await desk.slots("a", "b", "c");
    const [first, second, third] = [desk.wait("1", a), desk.wait("2", b), desk.wait("3", c)] as const;
    second.leave(left);
    await expect(second.slot).rejects.toBe(left);
    expect((await desk.reserve("d")).at).toBe(c?.at);
    expect((await first.slot).at).toBe(reopens);
    expect((await third.slot).id).toBe("b");
    expect(desk.ended).toEqual(["2", "1", "3"]);
  });

  test("whose signal has aborted before gives its slot back", async () => {
    const desk = new Desk({ rate: "1/m", lateness: 0 });
    const [a] = await desk.slots("a");
    if (a === undefined) throw new Error("No slot");
    const call = { ref: desk.ref, id: "1", signal: AbortSignal.abort(left) };
    await expect(awaitSlot(desk.context, call, a)).rejects.toBe(left);
    expect((await desk.reserve("b")).at).toBeLessThan(a.at + 30_000 * MS);
  });

  test("after its start changes nothing", async () => {
    const desk = new Desk({ rate: "1/m", lateness: 0 });
    const [a] = await desk.slots("a");
    const call = desk.wait("1", a);
    await call.slot;
    call.leave(left);
    expect((await desk.reserve("b")).at).toBeGreaterThanOrEqual((a?.at ?? 0) + 60_000 * MS);
    expect(desk.asked.map(({ mode }) => mode)).toEqual(["next", "next"]);
  });

  test("while its slot is being replaced gives back the other one", async () => {
    const desk = new Desk({ rate: "1/m", lateness: "10ms" });
    const [a] = await desk.missable("a");
    const call = desk.wait("1", a);
    // Due after the line's own timer, and like that one when the block ends: the reply cannot be here yet.
    setTimeout(() => call.leave(left), desk.msTo(a, 10));
    blockEventLoop(desk.msTo(a, 60));
    await expect(call.slot).rejects.toBe(left);
    expect(desk.asked.map(({ mode }) => mode)).toEqual(["next", "next"]);
    await until(async () => (await desk.next()) < desk.now + 30_000 * MS, { what: "the slot to be given back" });
    expect(desk.asked.map(({ mode }) => mode)).toEqual(["next", "next", "return"]);
  });

  test("gives back the newest of the slots, although that one was still on its way", async () => {
    const desk = new Desk({ rate: "2/m", lateness: "10ms" });
    const [a, b] = await desk.missable("a", "b");
    const first = desk.wait("1", a);
    const second = desk.wait("2", b);
    setTimeout(() => first.leave(left), desk.msTo(a, 10));
    blockEventLoop(desk.msTo(a, 60));
    await expect(first.slot).rejects.toBe(left);
    // The replacement of a lies behind b; the second call keeps b.
    await until(() => desk.asked.some(({ mode }) => mode === "return"), { what: "a slot to be given back" });
    const next = (await desk.reserve("c")).at;
    expect(next).toBeGreaterThan((b?.at ?? 0) + 20_000 * MS);
    expect(next).toBeLessThan((b?.at ?? 0) + 40_000 * MS);
    second.leave(left);
    await expect(second.slot).rejects.toBe(left);
  });
});

describe("a slot far ahead", () => {
  test("is confirmed once, shortly before it comes", async () => {
    const desk = new Desk({ rate: "5/s", lateness: 0 });
    const [, b] = await desk.slots("a", "b");
    const slot = await desk.wait("1", b).slot;
    expect(slot.at).toBe(b?.at);
    const confirmed = desk.asked.filter(({ mode }) => mode === "confirm");
    expect(confirmed.length).toBe(1);
    // 15 ms and a round trip.
    expect(confirmed[0]?.at).toBeGreaterThanOrEqual(slot.at - 17 * MS - desk.context.session.clock.roundTrip * 2);
    expect(confirmed[0]?.at).toBeLessThan(desk.now);
  });

  test("is confirmed in time also when a nearer one comes before it", async () => {
    const desk = new Desk({ rate: "200/s", lateness: 0 });
    await desk.pause(300);
    const names = Array.from({ length: 8 }, (_, i) => String(i));
    const slots = await desk.slots(...names);
    const calls = names.map((name, i) => desk.wait(name, slots[i]));
    await calls[0]?.slot;
    // They lie within 35 ms: half of them were due for it when the first one started, and must not wait for that.
    const early = desk.asked.filter(({ mode, at }) => mode === "confirm" && at < (slots[0]?.at ?? 0));
    expect(early.length).toBeGreaterThanOrEqual(1);
    await Promise.all(calls.map(({ slot }) => slot));
    expect(desk.ended).toEqual(names);
    expect(desk.asked.filter(({ mode }) => mode === "confirm").length).toBe(names.length);
  });

  test("stays where it is when its call, which has started in another one, reserves one for a further attempt", async () => {
    const desk = new Desk({ rate: "4/s", lateness: 0 });
    const [now, b, again] = await desk.slots("1", "2", "2");
    await desk.wait("1", now).slot;
    const calls = [desk.wait("2", b), desk.wait("3", again)];
    expect(await Promise.all(calls.map(({ slot }) => slot))).toEqual([b, again]);
  });

  test("is moved by a pause that was set meanwhile", async () => {
    const desk = new Desk({ rate: "2/s", lateness: 0 });
    const [, b] = await desk.slots("a", "b");
    const call = desk.wait("1", b);
    const reopens = await desk.pause(1_000);
    expect((await call.slot).at).toBe(reopens);
  });
});

describe("a deadline", () => {
  test("fails a call that would start after it; its slot goes to the next one", async () => {
    const desk = new Desk({ rate: "4/s", lateness: 0 });
    const reopens = await desk.pause(500);
    const [a, b] = await desk.slots("a", "b");
    const first = desk.wait("1", a, reopens - 1);
    // Before b comes.
    const second = desk.wait("2", b, reopens + 200 * MS);
    await expect(first.slot).rejects.toMatchObject({ code: "ERR_WAIT_EXCEEDED" });
    expect(await second.slot).toEqual(a);
    expect(desk.ended).toEqual(["1", "2"]);
  });

  test("ends the wait for a slot that lies far behind it", async () => {
    const desk = new Desk({ rate: "50/s", lateness: 0 });
    await desk.pause(3_600_000);
    const [a, b] = await desk.slots("a", "b");
    const first = desk.wait("1", a, desk.now + 100 * MS);
    const second = desk.wait("2", b);
    await expect(first.slot).rejects.toMatchObject({ code: "ERR_WAIT_EXCEEDED" });
    expect((await desk.reserve("c")).at).toBe(b?.at);
    second.leave(left);
    await expect(second.slot).rejects.toBe(left);
  });

  test("holds when a pause moves the slot behind it", async () => {
    const desk = new Desk({ rate: "5/s", lateness: 0, maxWait: "10m" });
    const [, b] = await desk.slots("a", "b");
    const call = desk.wait("1", b, (b?.at ?? 0) + 100 * MS);
    await desk.pause(3_600_000);
    await expect(call.slot).rejects.toMatchObject({ code: "ERR_WAIT_EXCEEDED", maxWait: 600_000 });
    // The slot behind the pause is given back.
    await until(() => desk.asked.some(({ mode }) => mode === "return"), { what: "a slot to be given back" });
  });
});

describe("an error of Redis", () => {
  test("while a slot is replaced fails the last call only", async () => {
    const desk = new Desk({ rate: "50/s", lateness: "10ms" });
    const slots = await desk.slots("a", "b", "c");
    await spoil(desk);
    // Only the first of them can be missed.
    const { now } = desk;
    const [a, b, c] = slots.map(({ id }, i) => ({
      id,
      at: now + (i + 3) * MS,
      lateness: i === 0 ? 10 * MS : 0,
      shifted: 0,
      cost: 1,
    }));
    const calls = [desk.wait("1", a), desk.wait("2", b), desk.wait("3", c)] as const;
    blockEventLoop(60);
    await expect(calls[2].slot).rejects.toThrow(/WRONGTYPE/);
    expect(ids([await calls[0].slot, await calls[1].slot])).toEqual(["b", "c"]);
    expect(desk.ended).toEqual(["1", "2", "3"]);
  });

  test("while the slot of a call that has left is replaced fails nobody", async () => {
    const desk = new Desk({ rate: "50/s", lateness: "10ms" });
    const [a] = await desk.missable("a");
    await spoil(desk);
    const first = desk.wait("1", a);
    setTimeout(() => first.leave(left), desk.msTo(a, 10));
    blockEventLoop(desk.msTo(a, 60));
    await expect(first.slot).rejects.toBe(left);
    // In a slot that is never late, so that it needs nothing of the gate.
    const second = desk.wait("2", { id: "b", at: desk.now, lateness: 0, shifted: 0, cost: 1 });
    await second.slot;
  });
});

describe("what is left behind", () => {
  setFlagsFromString("--expose-gc");
  const gc = runInNewContext("gc") as () => void;

  const ends: Record<string, (desk: Desk, call: { ref: BucketRef; id: string }) => Promise<unknown>> = {
    async "a start"(desk, call) {
      await awaitSlot(desk.context, call, await desk.reserve("1"));
    },
    async "an abort"(desk, call) {
      await desk.pause(60_000);
      const signal = AbortSignal.timeout(20);
      await expect(awaitSlot(desk.context, { ...call, signal }, await desk.reserve("1"))).rejects.toThrow(/timeout/);
    },
    async "an abort while a slot is replaced"(desk, call) {
      const signal = AbortSignal.timeout(50);
      const slot = await desk.reserve("1");
      const started = awaitSlot(desk.context, { ...call, signal }, { ...slot, at: desk.now + 3 * MS });
      blockEventLoop(100);
      await expect(started).rejects.toThrow(/timeout/);
    },
    async "a deadline"(desk, call) {
      await desk.pause(60_000);
      const started = awaitSlot(desk.context, { ...call, deadline: desk.now + 20 * MS }, await desk.reserve("1"));
      // The test runner would keep the error, and that its stack, and that the line.
      expect(await started.catch((error: Error) => error.name)).toBe("WaitExceededError");
    },
    async "an error"(desk, call) {
      const slot = await desk.reserve("1");
      await spoil(desk);
      const started = awaitSlot(desk.context, call, { ...slot, at: desk.now + 3 * MS });
      blockEventLoop(60);
      await expect(started).rejects.toThrow(/WRONGTYPE/);
    },
  };

  /** The line of a bucket knows it by what the first call said; nothing else keeps that. */
  async function used(desk: Desk, end: string): Promise<WeakRef<BucketRef>> {
    const { ref } = desk;
    await ends[end]?.(desk, { ref, id: "1" });
    return new WeakRef(ref);
  }

  test.each(Object.keys(ends))("nothing, after %s", async (end) => {
    const desk = new Desk({ rate: "1/m", lateness: "10ms" });
    const weak = await used(desk, end);
    const gone = (): boolean => {
      gc();
      return weak.deref() === undefined;
    };
    await until(gone, { what: "the line to be forgotten" });
  });

  test("no timer: the process ends by itself", async () => {
    await using child = startChild("line.mjs", {
      args: [JSON.stringify({ redis: redisUrl(), prefix: uniquePrefix() })],
    });
    await child.next("done");
    const { code } = await bounded(child.exited, 5_000, "the process to end");
    expect({ code, output: child.output() }).toEqual({ code: 0, output: "" });
  });
});
