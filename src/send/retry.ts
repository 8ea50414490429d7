import pRetry, { AbortError, type RetryContext } from "p-retry";
import { SpillwayError } from "../errors.js";
import type { Limit } from "../limits/options.js";
import { sleep } from "../redis/sleep.js";
import type { AttemptResponse } from "./attempt.js";
import { type Feedback, REFUSALS } from "./feedback/read.js";

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

/** The server does not want this call again. */
export const isUnwanted = (error: FailedAttempt): boolean => feedbackOf(error)?.retry === false;

export interface RetryPlan {
  readonly limit: Limit;
  /** Attempts that were made before, and those of them that count. */
  readonly made: number;
  readonly counted: number;
  readonly mayRepeat: boolean;
  /** Ends the waits between attempts. */
  readonly signal: AbortSignal;
  /** For how many ms from now on a refusal does not count as an attempt. */
  patience(): number;
  /** Takes a retry out of the budget of the bucket; false when none is left. */
  spend(): Promise<boolean>;
  onFailure(error: FailedAttempt, counted: number, willRetry: boolean): void;
}

/**
 * The server turned the call away unseen, because there were too many: nothing speaks against sending it again. Some say so
 * with other statuses, such as GitHub with 403.
 */
const turnsAway = (status: number, feedback: Feedback | undefined): boolean =>
  status === 429 || (feedback?.refused === true && status < 500);

const isRefusal = ({ cause }: FailedAttempt): boolean =>
  cause instanceof FailedStatus && turnsAway(cause.response.status, cause.feedback);

/**
 * Whether a response is no result: a failure, or a refusal where those are waited for. Not every status with which a reader of
 * the limit asks for a pause: one that paces all calls would have a 404 sent again and again.
 */
export function isFailure({ retry }: Limit, status: number, feedback: Feedback | undefined): boolean {
  const waits = retry.afterRefusal && retry.statuses.includes(429) && REFUSALS.includes(status);
  return retry.statuses.includes(status) || (waits && turnsAway(status, feedback));
}

/** How long the server asks to wait. */
const waitOf = (error: FailedAttempt): number => feedbackOf(error)?.pauseFor ?? feedbackOf(error)?.retryAfter ?? 0;

/**
 * Attempts until one succeeds or the limit's `retry` says that it is enough: exponential backoff with jitter between
 * the attempts, each of which waits for a slot of its own besides. A refusal is no attempt, as long as the call may wait.
 *
 * @throws {FailedAttempt} the last failure; {SpillwayError} one that no attempt can mend; or the signal's reason.
 */
export async function withRetries<T>(once: (attempt: number) => Promise<T>, plan: RetryPlan): Promise<T> {
  const { retry } = plan.limit;
  let { counted } = plan;
  let again = false;
  const isFree = (error: FailedAttempt): boolean =>
    retry.afterRefusal && isRefusal(error) && waitOf(error) < plan.patience();
  const decide = async (error: FailedAttempt, free: boolean): Promise<boolean> => {
    if (isUnwanted(error)) return false;
    if (free) return true;
    return plan.mayRepeat && counted < retry.attempts && (await plan.spend());
  };
  const onFailedAttempt = async ({ error }: RetryContext): Promise<void> => {
    if (!(error instanceof FailedAttempt)) return;
    const free = isFree(error);
    if (!free) counted++;
    again = await decide(error, free);
    plan.onFailure(error, counted, again);
    const { retryAfter = 0, pauseFor } = feedbackOf(error) ?? {};
    // A pause of the whole bucket is waited for at the gate.
    if (again && pauseFor === undefined && retryAfter > 0) await sleep(retryAfter, plan.signal);
  };
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
    retries: Infinity,
    minTimeout: retry.minBackoffMs,
    maxTimeout: retry.maxBackoffMs,
    factor: retry.factor,
    randomize: true,
    signal: plan.signal,
    onFailedAttempt,
    shouldRetry: () => again,
    // Where the server has said how long to wait, there is no backoff besides.
    shouldConsumeRetry: ({ error }) => !(error instanceof FailedAttempt && isRefusal(error) && waitOf(error) > 0),
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
