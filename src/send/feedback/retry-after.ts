import type { Reading } from "./types.js";
import { bounded, MAX_PAUSE_MS, readWait } from "./values.js";

/**
 * `Retry-After` in seconds or as a date (RFC 9110, 10.2.3). `retry-after-ms` (OpenAI, Azure) says the same more
 * finely; where the two disagree, the standard one counts.
 */
export function readRetryAfter(reading: Reading): number | undefined {
  const standard = readWait(reading, "retry-after", MAX_PAUSE_MS);
  const text = reading.get("retry-after-ms") ?? "";
  if (!/^\d{1,15}(?:\.\d+)?$/.test(text)) return standard;
  const exact = bounded(reading, `retry-after-ms: ${text}`, Number(text), MAX_PAUSE_MS);
  return standard === undefined || Math.abs(standard - exact) < 1000 ? exact : standard;
}

/** What a server thinks of another attempt: `x-should-retry` (OpenAI, Anthropic), `stripe-should-retry`. */
export function readShouldRetry(reading: Reading): boolean | undefined {
  const text = reading.get("x-should-retry") ?? reading.get("stripe-should-retry");
  return text === "true" ? true : text === "false" ? false : undefined;
}
