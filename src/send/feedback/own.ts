import { checkKeys, isRecord } from "../../limits/check.js";
import type { FeedbackReader, FeedbackResponse, OwnFeedback, Reading } from "./types.js";
import { bounded, MAX_PAUSE_MS, MAX_WINDOW_MS } from "./values.js";

const TIMES = { pauseFor: MAX_PAUSE_MS, resetAfter: MAX_WINDOW_MS };
const COUNTS = ["remaining", "cost"];
const FIELDS = [...Object.keys(TIMES), ...COUNTS];

/** Asks a reader that is not ours: what it throws or gets wrong becomes a warning, and costs nobody his response. */
export function hearOwn(own: FeedbackReader, response: FeedbackResponse, reading: Reading): OwnFeedback | undefined {
  let said: unknown;
  try {
    said = own(response);
  } catch (error) {
    reading.warn(`feedback: ${error instanceof Error ? error.message : String(error)}`);
    return undefined;
  }
  if (said === undefined || said === null) return undefined;
  // What an async one throws later would end the process.
  if (said instanceof Promise) said.catch(() => {});
  if (!isRecord(said) || "then" in said) {
    reading.warn("feedback: expected an object such as { pauseFor: 1000 }, or undefined");
    return undefined;
  }
  try {
    checkKeys(said, "feedback", FIELDS);
  } catch (error) {
    reading.warn(error instanceof Error ? error.message : String(error));
  }
  const fields = [
    ...Object.entries(TIMES).map(([name, max]) => [name, readField(reading, name, said[name], max)]),
    ...COUNTS.map((name) => [name, readField(reading, name, said[name])]),
  ];
  return Object.fromEntries(fields.filter(([, value]) => value !== undefined));
}

function readField(reading: Reading, name: string, value: unknown, longest?: number): number | undefined {
  if (value === undefined) return undefined;
  if (typeof value === "number" && value >= 0) {
    return longest === undefined ? value : bounded(reading, `feedback: ${name} ${value}`, value, longest);
  }
  reading.warn(`feedback: expected \`${name}\` to be a number from 0, in ms where it is a time`);
  return undefined;
}
