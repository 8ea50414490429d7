import { readFileSync } from "node:fs";
import { join } from "node:path";
import { createLimiter, type Limiter, type LimiterOptions, type StrictTakeOptions } from "spillway/limiters";
import { afterAll } from "vitest";
import { redisUrl, uniquePrefix } from "../helpers/redis.js";

/** One recorded sequence; see vectors/README.md. */
export interface Sequence<Params = Record<string, never>> {
  readonly name: string;
  readonly params: Params;
  readonly steps: readonly Step[];
}

export interface Step {
  readonly atMs: number;
  readonly op: string;
  readonly args: readonly unknown[];
  readonly expect: unknown;
}

/** The sequences of one file, but for those named, each with the reason why it does not fit. */
export function recorded<Params>(file: string, unfit: Readonly<Record<string, string>> = {}): Sequence<Params>[] {
  const text = readFileSync(join(import.meta.dirname, "vectors", `${file}.json`), "utf8");
  const all = JSON.parse(text) as Sequence<Params>[];
  const missing = Object.keys(unfit).filter((name) => !all.some((sequence) => sequence.name === name));
  if (missing.length > 0) throw new Error(`${file} has no sequence ${missing.join(", ")}`);
  return all.filter(({ name }) => unfit[name] === undefined);
}

/** What is right at these steps of these sequences, in place of what was recorded. */
export type Corrections = Readonly<Record<string, Readonly<Record<number, unknown>>>>;

/** What to expect of a step. */
export function expected(corrections: Corrections, name: string, index: number, step: Step): unknown {
  const corrected = corrections[name];
  return corrected !== undefined && index in corrected ? corrected[index] : step.expect;
}

const open: Limiter[] = [];
afterAll(() => Promise.all(open.splice(0).map((limiter) => limiter.close())));

/** A limiter on the tests' Redis, under a prefix that no other test has unless one is given. */
export function limiterOf(options: LimiterOptions, prefix: string = uniquePrefix()): Limiter<StrictTakeOptions> {
  // The one signature that all algorithms have in common; only token buckets are called with `strict`.
  const create = createLimiter as (redis: string, options: LimiterOptions) => Limiter<StrictTakeOptions>;
  const limiter = create(redisUrl(), { prefix, ...options });
  open.push(limiter);
  return limiter;
}
