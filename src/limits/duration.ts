import { InvalidLimitError } from "../errors.js";

/** Units of a duration: milliseconds, seconds, minutes, hours, days. */
export type DurationUnit = "ms" | "s" | "m" | "h" | "d";

type FromSeconds = `${number}ms` | `${number}s` | `${number}s${number}ms`;
type FromMinutes = FromSeconds | `${number}m` | `${number}m${FromSeconds}`;
type FromHours = FromMinutes | `${number}h` | `${number}h${FromMinutes}`;

/** A duration as text: `"250ms"`, `"10s"`, `"1.5h"`, or several units, the larger first: `"1m30s"`. */
export type DurationText = FromHours | `${number}d` | `${number}d${FromHours}`;

/** A length of time: milliseconds as a number, or text such as `"250ms"`, `"10s"`, `"5m"`, `"7d"`, `"1m30s"`. */
export type Duration = number | DurationText;

/** Milliseconds in one of each unit, the largest first. */
export const UNIT_MS: Readonly<Record<DurationUnit, number>> = Object.freeze({
  d: 86_400_000,
  h: 3_600_000,
  m: 60_000,
  s: 1000,
  ms: 1,
});

/** The longest duration that any option takes: a year, leap day included. */
export const MAX_DURATION_MS: number = 366 * UNIT_MS.d;

const NUMBER = String.raw`(\d+(?:\.\d+)?)`;
const PATTERN = new RegExp(`^(?:${NUMBER}d)?(?:${NUMBER}h)?(?:${NUMBER}m)?(?:${NUMBER}s)?(?:${NUMBER}ms)?$`);

/** The shortest and longest duration that an option takes, in ms. */
interface DurationBounds {
  /** @default 1 */
  readonly min?: number;
  /** @default 366 days */
  readonly max?: number;
}

/**
 * A {@link Duration} in whole ms.
 *
 * A fraction of a ms is rounded up, so that no wait and no rate period comes out shorter than it was written.
 *
 * @throws {InvalidLimitError} naming `option`, when the value is no duration or is out of bounds.
 */
export function parseDuration(value: unknown, option: string, bounds: DurationBounds = {}): number {
  const { min = 1, max = MAX_DURATION_MS } = bounds;
  const ms = typeof value === "string" ? textToMs(value) : value;
  if (typeof ms !== "number" || !Number.isFinite(ms)) {
    const zero = min === 0 ? ", or 0" : "";
    throw new InvalidLimitError(
      option,
      `a duration such as "250ms", "10s", "5m", "1h", "7d" or "1m30s", or milliseconds as a number${zero}`,
      value,
    );
  }
  if (ms < min || ms > max) {
    throw new InvalidLimitError(option, `a duration from ${formatDuration(min)} to ${formatDuration(max)}`, value);
  }
  return ceilMs(ms);
}

/** Rounded up to whole ms, but not for the dust of binary fractions: 2.007 * 1000 is 2007.0000000000002. */
export const ceilMs = (ms: number): number => Math.ceil(Number(ms.toPrecision(13)));

/** A duration that a timer of Node holds: a longer one than 2^31 - 1 ms fires at once. */
export const parseTimer = (value: unknown, option: string, { min = 1 }: Pick<DurationBounds, "min"> = {}): number =>
  parseDuration(value, option, { min, max: 24 * UNIT_MS.d });

/** Whole ms as the shortest text that {@link parseDuration} reads back: 90_000 is `"1m30s"`. */
export function formatDuration(ms: number): string {
  let rest = ms;
  let text = "";
  for (const [unit, size] of Object.entries(UNIT_MS)) {
    const count = Math.floor(rest / size);
    if (count > 0) text += `${count}${unit}`;
    rest -= count * size;
  }
  return text || "0ms";
}

function textToMs(text: string): number | undefined {
  const match = text === "" ? null : PATTERN.exec(text);
  if (match === null) return undefined;
  // The groups of the pattern stand in the order of the units.
  return Object.values(UNIT_MS).reduce((sum, size, index) => sum + Number(match[index + 1] ?? 0) * size, 0);
}
