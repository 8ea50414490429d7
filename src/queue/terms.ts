import { InvalidCallError } from "../errors.js";
import { asCall, isName } from "../limits/check.js";
import { type Duration, parseDuration } from "../limits/duration.js";
import { MAX_COST } from "../limits/rate.js";

/** How one call waits. */
export interface CallTerms {
  /**
   * Before or behind the other calls of its bucket that wait: first in, first out within each priority. High ones that never
   * cease keep the others waiting. What comes back to the queue, because its worker closed or died or for redelivery, does
   * so with normal priority.
   *
   * @default "normal"
   */
  readonly priority?: "high" | "normal" | "low";
  /**
   * What it weighs, where `rate` or `rules` of its limit count cost: an integer from 1 to 1,000,000. A redirect to a host
   * of another limit weighs what that one says.
   *
   * @default the `cost` of the limit, else 1
   */
  readonly cost?: number;
  /**
   * How long it may wait for its slot before it fails with `ERR_WAIT_EXCEEDED`; nothing of this is spent on the request. A
   * durable call fails when a worker notices: those look every third of their `lockDuration`.
   *
   * @default the `maxWait` of the limit
   */
  readonly maxWait?: Duration;
}

/** What the caller of a durable call may say about others like it. */
export interface Dedupe {
  readonly key: string;
  /** `"join"`: nothing is stored, and the ticket is that of the call that waits. `"refuse"`: fails with `ERR_DUPLICATE`. */
  readonly mode: "join" | "refuse";
}

/** {@link CallTerms} after validation. */
export interface Terms {
  readonly priority: "high" | "normal" | "low";
  readonly cost: number;
  /** Undefined: that of the limit. */
  readonly maxWaitMs: number | undefined;
  readonly dedupe?: Dedupe | undefined;
  /** Whose quota it counts against, where the limit has one. */
  readonly producer?: string | undefined;
}

/** {@link CallTerms} as they come, where what was not said may be there as undefined. */
export type Wished = { readonly [K in keyof CallTerms]: CallTerms[K] | undefined };

/** Names of {@link CallTerms}. */
export const TERMS: readonly string[] = ["priority", "cost", "maxWait"] satisfies (keyof CallTerms)[];

const PRIORITIES = { high: 1, normal: 0, low: 2 } as const;

/** @throws {InvalidCallError} when they cannot be meant. */
export function readTerms({ priority = "normal", cost, maxWait }: Wished, usualCost: () => number): Terms {
  if (!Object.hasOwn(PRIORITIES, priority)) {
    throw new InvalidCallError(
      `Expected \`priority\` to be "high", "normal" or "low", got ${JSON.stringify(priority)}`,
    );
  }
  return { priority, cost: checkCost(cost ?? usualCost()), maxWaitMs: readMaxWait(maxWait) };
}

/** @throws {InvalidCallError} when no call can have cost that. */
export function checkActualCost(cost: unknown): number {
  if (typeof cost === "number" && cost >= 0 && cost <= Number.MAX_SAFE_INTEGER / 1000) return cost;
  throw new InvalidCallError(`Expected the actual cost to be a number from 0 on, got ${String(cost)}`);
}

function checkCost(cost: unknown): number {
  if (typeof cost === "number" && Number.isInteger(cost) && cost >= 1 && cost <= MAX_COST) return cost;
  throw new InvalidCallError(`Expected \`cost\` to be an integer from 1 to ${MAX_COST}, got ${String(cost)}`);
}

function readMaxWait(maxWait: unknown): number | undefined {
  return maxWait === undefined ? undefined : asCall(() => parseDuration(maxWait, "maxWait"));
}

/** @throws {InvalidCallError} when it is neither a key nor an object with one. */
export function readDedupe(dedupe: unknown): Dedupe | undefined {
  if (dedupe === undefined) return undefined;
  const { key, mode = "join" }: { key?: unknown; mode?: unknown } =
    typeof dedupe === "object" && dedupe !== null ? dedupe : { key: dedupe };
  if (isKey(key) && (mode === "join" || mode === "refuse")) {
    return { key, mode };
  }
  throw new InvalidCallError(
    'Expected `dedupe` to be a key of 1 to 1000 characters, or { key, mode: "join" | "refuse" }',
  );
}

const isKey = (key: unknown): key is string => isName(key) && key.length <= 1000;

/** What admit.lua reads; nothing for a call like any other. */
export function encodeTerms({ priority, cost, maxWaitMs, dedupe, producer = "" }: Terms): string {
  const terms = {
    ...(priority !== "normal" && { p: PRIORITIES[priority] }),
    ...(cost !== 1 && { w: cost }),
    ...(maxWaitMs !== undefined && { x: maxWaitMs * 1000 }),
    ...(producer !== "" && { q: producer }),
    ...(dedupe !== undefined && { d: dedupe.key, u: dedupe.mode }),
  };
  return Object.keys(terms).length === 0 ? "" : JSON.stringify(terms);
}
