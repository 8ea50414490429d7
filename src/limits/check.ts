import { InvalidCallError, InvalidLimitError } from "../errors.js";

/** Refuses anything but an object whose keys are all `known`; a misspelt key is named, with the one that was meant. */
export function checkKeys(
  value: unknown,
  option: string,
  known: readonly string[],
): asserts value is Readonly<Record<string, unknown>> {
  if (!isRecord(value)) {
    throw new InvalidLimitError(option, `an object with the options ${known.join(", ")}`, value);
  }
  for (const key of Object.keys(value)) {
    if (known.includes(key)) continue;
    const meant = closest(key, known);
    const advice = meant === undefined ? `the options are ${known.join(", ")}` : `did you mean \`${meant}\`?`;
    const shown = veil(value[key]);
    throw new InvalidLimitError(`${option}.${key}`, `left out, as there is no such option (${advice})`, shown);
  }
}

/** The options of a call: what is misspelt, or something else in their place, would be a call like any other. */
export function checkCallOptions(options: unknown, known: readonly string[]): void {
  asCall(() => checkKeys(options, "options", known));
}

/** What is said of a limit when it is wrong, said of a call. */
export function asCall<T>(check: () => T): T {
  try {
    return check();
  } catch (cause) {
    throw cause instanceof InvalidLimitError ? new InvalidCallError(cause.message, { cause }) : cause;
  }
}

/** An object that is no array, function or primitive. */
export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Text that can name something: not empty, and without half of a surrogate pair, which cannot be stored. */
export function isName(value: unknown): value is string {
  return typeof value === "string" && value !== "" && !/\p{Surrogate}/u.test(value);
}

/** A whole number, by default a positive one. */
export function checkInteger(value: unknown, option: string, bounds: { min?: number; max?: number } = {}): number {
  const { min = 1, max = Number.MAX_SAFE_INTEGER } = bounds;
  if (typeof value === "number" && Number.isSafeInteger(value) && value >= min && value <= max) return value;
  const expected = bounds.max === undefined ? "a positive integer" : `an integer from ${min} to ${max}`;
  throw new InvalidLimitError(option, expected, value);
}

/** A finite number within bounds. */
export function checkNumber(value: unknown, option: string, bounds: { min: number; max: number }): number {
  if (typeof value === "number" && value >= bounds.min && value <= bounds.max) return value;
  throw new InvalidLimitError(option, `a number from ${bounds.min} to ${bounds.max}`, value);
}

/** One of a few words. */
export function checkOneOf<T extends string>(value: unknown, option: string, words: readonly T[]): T {
  const word = words.find((candidate) => candidate === value);
  if (word !== undefined) return word;
  throw new InvalidLimitError(option, words.map((candidate) => `"${candidate}"`).join(" or "), value);
}

/** An array, each item read by `item`, which gets the path of its place, such as `rules[1]`. */
export function checkArray<T>(
  value: unknown,
  option: string,
  item: (value: unknown, option: string) => T,
): readonly T[] {
  if (!Array.isArray(value)) throw new InvalidLimitError(option, "an array", value);
  // Array.from, unlike map, visits the holes of a sparse array.
  return Object.freeze(Array.from(value, (entry: unknown, index) => item(entry, `${option}[${index}]`)));
}

/** A function. */
export function checkFunction(value: unknown, option: string, signature: string): void {
  if (typeof value === "function") return;
  throw new InvalidLimitError(option, `a function ${signature}`, typeof value === "string" ? "…" : veil(value));
}

/** What an error may show: objects without their values, since a plain object of headers may hold credentials. */
function veil(value: unknown): unknown {
  if (Array.isArray(value)) return ["…"];
  return isRecord(value) ? Object.fromEntries(Object.keys(value).map((key) => [key, "…"])) : value;
}

/** The word that differs from `typed` in at most two letters, if any. */
function closest(typed: string, words: readonly string[]): string | undefined {
  const ranked = words
    .map((word) => ({ word, distance: editDistance(typed.toLowerCase(), word.toLowerCase()) }))
    .sort((a, b) => a.distance - b.distance);
  const best = ranked[0];
  return best !== undefined && best.distance <= 2 ? best.word : undefined;
}

/** Levenshtein: letters to insert, delete or replace to turn `a` into `b`. */
function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, column) => column);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const replaced = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(replaced, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}

/** `true` or `false`. */
export function checkBoolean(value: unknown, option: string): boolean {
  if (typeof value === "boolean") return value;
  throw new InvalidLimitError(option, "true or false", value);
}

/** Reads an option unless it was left out. */
export function given<T>(value: unknown, option: string, read: (value: unknown, option: string) => T): T | undefined {
  return value === undefined ? undefined : read(value, option);
}
