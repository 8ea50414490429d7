import assert from "node:assert/strict";
import fc from "fast-check";
import { type Bucket, bucketOf, MS, outcomesOfTest, S, T0 } from "../helpers/scripts.js";
import { type ModelCall, QueueModel } from "./model.js";

export const options = fc.record({
  capacity: fc.integer({ min: 1, max: 6 }),
  overflow: fc.constantFrom("reject" as const, "drop-oldest" as const),
  concurrency: fc.option(fc.integer({ min: 1, max: 4 }), { nil: undefined }),
});

const priority = fc.constantFrom("normal" as const, "normal" as const, "high" as const, "low" as const);
const RANKS = { high: 1, normal: 2, low: 3 } as const;
const said = fc.record({
  priority,
  key: fc.constantFrom(undefined, undefined, "k", "l"),
  refuse: fc.boolean(),
  /** In ms. */
  ownMaxWait: fc.constantFrom(undefined, undefined, 100, 5000),
});
const admitRequests = fc.record({
  op: fc.constant("admit" as const),
  kind: fc.constant("request" as const),
  count: fc.integer({ min: 1, max: 4 }),
  mode: fc.constantFrom("all" as const, "fit" as const),
  client: fc.constant("" as const),
  maxWait: fc.constantFrom(undefined, 100 * MS, 5 * S),
  said: fc.array(said, { minLength: 4, maxLength: 4 }),
});
const admitPermit = fc.record({
  op: fc.constant("admit" as const),
  kind: fc.constant("permit" as const),
  count: fc.constant(1),
  mode: fc.constant("all" as const),
  client: fc.constantFrom("alive" as const, "dead" as const),
  maxWait: fc.constantFrom(100 * MS, 5 * S),
  said: fc.tuple(
    fc.record({
      priority,
      key: fc.constant(undefined),
      refuse: fc.constant(false),
      ownMaxWait: fc.constant(undefined),
    }),
  ),
});
const token = fc.constantFrom("A", "B");
const which = fc.nat(5);
const end = fc.constantFrom("completed" as const, "failed" as const);
const steps = fc.oneof(
  { weight: 4, arbitrary: admitRequests },
  { weight: 3, arbitrary: admitPermit },
  {
    weight: 6,
    arbitrary: fc.record({ op: fc.constant("take" as const), token, most: fc.integer({ min: 0, max: 4 }) }),
  },
  { weight: 3, arbitrary: fc.record({ op: fc.constant("finish" as const), which, end, stale: fc.boolean() }) },
  {
    weight: 3,
    arbitrary: fc.record({
      op: fc.constant("redeliver" as const),
      which,
      stale: fc.boolean(),
      delay: fc.constantFrom(1, 500, 30_000),
    }),
  },
  { weight: 2, arbitrary: fc.record({ op: fc.constant("stall" as const), which }) },
  { weight: 2, arbitrary: fc.record({ op: fc.constant("recover" as const) }) },
  { weight: 2, arbitrary: fc.record({ op: fc.constant("requeue" as const), which }) },
  { weight: 1, arbitrary: fc.record({ op: fc.constant("cancel" as const), which }) },
  { weight: 1, arbitrary: fc.record({ op: fc.constant("clear" as const) }) },
  { weight: 1, arbitrary: fc.record({ op: fc.constant("retryFailed" as const) }) },
);
type StepOf<A> = A extends fc.Arbitrary<infer T> ? T : never;
export type Step = StepOf<typeof steps>;
export type Options = StepOf<typeof options>;
const elapsed = fc.constantFrom(0, 0, 0, 10 * MS, 60 * MS, 200 * MS, S, 20 * S);
export const histories = fc.array(fc.tuple(elapsed, steps), { minLength: 5, maxLength: 40 });

/** Runs a history on a bucket and on the model, and compares them after every step. */
export async function replay(given: Options, history: readonly (readonly [number, Step])[]): Promise<void> {
  const { concurrency, ...rest } = given;
  const more = concurrency === undefined ? {} : { concurrency };
  const bucket = await bucketOf({ rate: "20/s", burst: 2, lateness: 0, ...rest, ...more });
  const run = new Replay(bucket, new QueueModel(given, ["alive"]));
  for (const [pause, step] of history) {
    run.now += pause;
    await run.step(step);
    await run.expectSame();
  }
  await run.drain();
}

class Replay {
  now: number = T0;
  readonly bucket: Bucket;
  readonly model: QueueModel;
  readonly #ever: ModelCall[] = [];

  constructor(bucket: Bucket, model: QueueModel) {
    this.bucket = bucket;
    this.model = model;
  }

  async step(step: Step): Promise<void> {
    const { bucket, model, now } = this;
    if (step.op === "admit") return this.#admit(step);
    if (step.op === "take") {
      const { most, token: worker } = step;
      model.take(now, worker, most, await bucket.take({ now, worker, most }));
    } else if (step.op === "recover") {
      const { recovered, dropped } = await bucket.recover(now);
      const expected = model.recover(now);
      assert.deepEqual(recovered.toSorted(), expected.recovered.toSorted());
      assert.deepEqual(
        dropped.map(([why, id]) => `${why} ${id}`),
        expected.dropped,
      );
    } else if (step.op === "clear") {
      assert.deepEqual(
        (await bucket.clear(now)).map(([, id]) => id),
        model.clear(),
      );
    } else if (step.op === "retryFailed") {
      assert.equal(await bucket.retryFailed(now), model.retryFailed(now));
    } else if (step.op === "cancel") {
      const call = this.#ever.at(-1 - step.which);
      if (call !== undefined) assert.equal(await bucket.cancel(now, call.id), model.cancel(call.id));
    } else if (step.op === "finish") {
      await this.#finish(step);
    } else if (step.op === "redeliver") {
      const { call, by } = this.#taken(step);
      if (call === undefined) return;
      const expected = model.redeliver(now, call.id, by, step.delay);
      assert.equal(await bucket.redeliver(now, call.id, step.delay, { token: by }), expected);
    } else {
      const [id, held] = [...model.active].at(step.which % Math.max(1, model.active.size)) ?? [];
      if (id === undefined || held === undefined) return;
      if (step.op === "requeue") {
        assert.equal(await bucket.requeue(now, id, held.token), model.requeue(now, id, held.token));
      } else {
        model.stall(id);
        await bucket.unlock(id);
      }
    }
  }

  async #admit(step: StepOf<typeof admitRequests> | StepOf<typeof admitPermit>): Promise<void> {
    const { bucket, model, now } = this;
    const { kind, client, mode, maxWait } = step;
    const calls = step.said.slice(0, step.count).map((of, i): ModelCall => {
      const id = `id${String(this.#ever.length + i).padStart(4, "0")}`;
      const { key, refuse, ownMaxWait } = of;
      const deadline = now + (ownMaxWait === undefined ? (maxWait ?? Infinity) : ownMaxWait * MS);
      const rank = RANKS[of.priority];
      const [order, again, taken, started] = [0, false, false, false];
      return { id, kind, client, rank, key, refuse, ownMaxWait, deadline, order, again, taken, started };
    });
    this.#ever.push(...calls);
    const ids = calls.map(({ id }) => id);
    const waits = maxWait === undefined ? {} : { maxWait };
    const terms = step.said.map(({ key, refuse, ownMaxWait, ...rest }) => ({
      ...rest,
      maxWaitMs: ownMaxWait,
      dedupe: key === undefined ? undefined : { key, mode: refuse ? ("refuse" as const) : ("join" as const) },
    }));
    model.admit(now, calls, mode, await bucket.admit({ now, ids, kind, mode, client, terms, ...waits }));
  }

  /** A call in the hands of its holder, or of a worker that had it once. */
  #taken({ which: at, stale }: { readonly which: number; readonly stale: boolean }): {
    readonly call: ModelCall | undefined;
    readonly by: string;
  } {
    const candidates = this.#ever.filter(({ kind, taken }) => kind === "request" && taken);
    const call = candidates.at(-1 - (at % Math.max(1, candidates.length)));
    return { call, by: stale ? "stale" : (this.model.active.get(call?.id ?? "")?.token ?? "stale") };
  }

  async #finish(step: Extract<Step, { op: "finish" }>): Promise<void> {
    const { bucket, model, now } = this;
    const { end: how } = step;
    const { call, by } = this.#taken(step);
    if (call === undefined) return;
    const before = await bucket.result(call.id);
    const expected = model.finish(now, call.id, by, how);
    const actual = await bucket.finish(now, call.id, { token: by, end: how });
    assert.equal(actual === "LOST" ? "LOST" : "OK", expected);
    if (expected === "LOST") assert.deepEqual(await bucket.result(call.id), before);
    else assert.deepEqual(await bucket.result(call.id), { ok: how === "completed", by });
  }

  async expectSame(): Promise<void> {
    const { bucket, model, now } = this;
    const [depth, waiting, aside, again, active] = await Promise.all([
      bucket.depth(now),
      bucket.waiting(),
      bucket.aside(),
      bucket.again(),
      bucket.redis.lrange(bucket.key("active"), 0, -1),
    ]);
    assert.deepEqual(
      waiting,
      model.wait.map(({ id }) => id),
    );
    assert.deepEqual(
      aside,
      model.aside.map(({ call }) => call.id),
    );
    assert.equal(depth, model.depth(now));
    assert.ok(depth <= model.options.capacity);
    assert.equal(again, model.again);
    assert.deepEqual(active.toSorted(), [...model.active.keys()].toSorted());
  }

  /** Everything that was accepted ends, once, and what was not leaves nothing behind. */
  async drain(): Promise<void> {
    const { bucket, model } = this;
    const left = (): number => model.wait.length + model.active.size + model.aside.length;
    for (let round = 0; round < 60 && left() > 0; round++) {
      this.now += 20 * S;
      await this.step({ op: "recover" });
      await this.step({ op: "take", token: "A", most: 4 });
      for (const id of model.active.keys()) {
        const by = model.active.get(id)?.token ?? "";
        model.finish(this.now, id, by, "completed");
        assert.notEqual(await bucket.finish(this.now, id, { token: by }), "LOST");
      }
    }
    assert.deepEqual([...model.ended.keys()].toSorted(), [...model.accepted].toSorted());
    for (const { id, kind, ownMaxWait } of this.#ever) {
      const how = model.ended.get(id);
      const stored = kind === "permit" ? undefined : STORED[how ?? ""];
      const result = await bucket.result(id);
      const own = how === "expired" && ownMaxWait !== undefined ? { maxWait: ownMaxWait } : {};
      if (stored !== undefined) assert.deepEqual(result, { ...JSON.parse(stored), ...own });
      else assert.equal(result === undefined, kind === "permit" || how === undefined);
    }
    await this.step({ op: "take", token: "A", most: 4 });
    await this.expectSame();
    assert.equal(
      await bucket.redis.exists(
        ...["wait", "active", "prioritized", "delayed", "dedupe"].map((key) => bucket.key(key)),
      ),
      0,
    );
  }
}

const STORED: Readonly<Record<string, string | undefined>> = {
  expired: outcomesOfTest.EXPIRED,
  full: outcomesOfTest.DROPPED,
  cancelled: outcomesOfTest.CANCELLED,
  cleared: outcomesOfTest.CANCELLED,
};
