import { type Feedback, type FeedbackReader, readFeedback } from "../../../dist/send/feedback/read.js";

/** The time of all responses in these tests that bring none of their own: 2026-05-04 12:00:00 UTC. */
export const NOW: number = Date.UTC(2026, 4, 4, 12, 0, 0);

/** What is heard in a response, without warnings. */
export function hear(
  status: number,
  headers: Record<string, string>,
  more: { body?: string; own?: FeedbackReader } = {},
): Feedback | undefined {
  const { feedback, warnings } = hearAll(status, headers, more);
  if (warnings.length > 0) throw new Error(`Unexpected warnings: ${warnings.join(", ")}`);
  return feedback;
}

export function hearAll(
  status: number,
  headers: Record<string, string>,
  { body, own }: { body?: string; own?: FeedbackReader } = {},
): ReturnType<typeof readFeedback> {
  return readFeedback({ status, headers: new Headers(headers), body, now: NOW }, own);
}
