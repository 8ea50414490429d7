import pRetry, { AbortError, type RetryContext } from "p-retry";
import { SpillwayError } from "../errors.js";
import type { Limit } from "../limits/options.js";
import { sleep } from "../redis/sleep.js";
import type { AttemptResponse } from "./attempt.js";
import type { Feedback } from "./feedback/read.js";

/** A response whose status is one that the limit counts as a failure. */
export class FailedStatus extends Error {
  readonly response: AttemptResponse;
  /** What the server said with it. */
  readonly feedback: Feedback | undefined;
  constructor(response: AttemptResponse, feedback: Feedback | undefined) {
    super(`The server answered with status ${response.status}`);
    this.response = response;
    this.feedback = feedback;
  }
}

/** Every error of an attempt in one class: p-retry ends at some classes of errors, which is not for it to decide. */
export class FailedAttempt extends Error {
  readonly attempts: number;
  constructor(error: unknown, attempts: number) {
    super(error instanceof Error ? error.message : String(error), { cause: error });
    this.attempts = attempts;
  }
}

const isAbort = (error: unknown): error is Error => error instanceof Error && error.name === "AbortError";

const feedbackOf = ({ cause }: FailedAttempt): Feedback | undefined =>
  cause instanceof FailedStatus ? cause.feedback : undefined;

export interface RetryPlan {
  readonly limit: Limit;
  /** Attempts that earlier workers have made. */
  readonly made: number;
  readonly mayRepeat: boolean;
  /** Ends the waits between attempts. */
  readonly signal: AbortSignal;
  onFailure(error: FailedAttempt, willRetry: boolean): void;
}

/**
 * Attempts until one succeeds or the limit's `retry` says that it is enough: exponential backoff with jitter between
 * the attempts, each of which waits for a slot of its own besides.
 *
 * @throws {FailedAttempt} the last failure; {SpillwayError} one that no attempt can mend; or the signal's reason.
 */
export async function withRetries<T>(once: (attempt: number) => Promise<T>, plan: RetryPlan): Promise<T> {
  const { retry } = plan.limit;
  const retries = plan.mayRepeat ? Math.max(0, retry.attempts - 1 - plan.made) : 0;
  const onFailedAttempt = async ({ error, retriesLeft }: RetryContext): Promise<void> => {
    if (!(error instanceof FailedAttempt)) return;
    const { retry: wanted = true, retryAfter = 0, pauseFor } = feedbackOf(error) ?? {};
    const again = retriesLeft > 0 && wanted;
    plan.onFailure(error, again);
    // A pause of the whole bucket is waited for at the gate.
    if (again && pauseFor === undefined && retryAfter > 0) await sleep(retryAfter, plan.signal);
  };
  const shouldRetry = ({ error }: RetryContext): boolean =>
    !(error instanceof FailedAttempt) || feedbackOf(error)?.retry !== false;
  let success: { readonly value: T } | undefined;
  const tryOnce = async (attempt: number): Promise<void> => {
    try {
      success = { value: await once(plan.made + attempt) };
    } catch (error) {
      // What no further attempt can mend, and what ended because the worker closes.
      if (error instanceof SpillwayError || (plan.signal.aborted && isAbort(error))) throw new AbortError(error);
      throw new FailedAttempt(error, plan.made + attempt);
    }
  };
  const over = pRetry(tryOnce, {
    retries,
    minTimeout: retry.minBackoffMs,
    maxTimeout: retry.maxBackoffMs,
    factor: retry.factor,
    randomize: true,
    signal: plan.signal,
    onFailedAttempt,
    shouldRetry,
  });
  try {
    await over;
  } catch (error) {
    // p-retry throws a success away when the signal has aborted meanwhile; it would be sent again.
    if (success === undefined) throw error;
  }
  if (success === undefined) throw new Error("Expected a result after the last attempt");
  return success.value;
}
