/** Readers for the replies of our own scripts: a shape that they do not have is a bug, and is said at once. */

export function list(value: unknown): readonly unknown[] {
  if (!Array.isArray(value)) throw new TypeError(`Expected a list in the reply of a script, got ${typeof value}`);
  return value;
}

export function text(value: unknown): string {
  if (typeof value === "string") return value;
  if (typeof value === "number") return String(value);
  if (Buffer.isBuffer(value)) return value.toString("utf8");
  throw new TypeError(`Expected a string in the reply of a script, got ${typeof value}`);
}

export function number(value: unknown): number {
  const parsed = typeof value === "number" ? value : Number(text(value));
  if (Number.isNaN(parsed)) throw new TypeError(`Expected a number in the reply of a script, got ${String(value)}`);
  return parsed;
}

export function bytes(value: unknown): Buffer {
  if (Buffer.isBuffer(value)) return value;
  return Buffer.from(text(value));
}

export const texts = (value: unknown): string[] => list(value).map(text);

/** A flat list of names and values, as HGETALL gives it inside a script. */
export function fields(value: unknown): Map<string, string> {
  const flat = list(value);
  const map = new Map<string, string>();
  for (let i = 0; i + 1 < flat.length; i += 2) map.set(text(flat[i]), text(flat[i + 1]));
  return map;
}
