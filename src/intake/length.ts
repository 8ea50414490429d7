import { isRecord } from "../limits/check.js";

/**
 * Node's fetch adds the length of a body to the one that it was given, as `3, 3`. Node's own dispatcher takes that, those
 * of undici 7 do not. Where all are the same, one is meant (RFC 9110, 8.6).
 */
export function withOneLength<O extends object>(options: O): O {
  const headers: unknown = Reflect.get(options, "headers");
  if (!isRecord(headers)) return options;
  const name = Object.keys(headers).find((one) => one.toLowerCase() === "content-length");
  const [, length] = /^(\d+)(?:, \1)+$/.exec(String(headers[name ?? ""])) ?? [];
  if (name === undefined || length === undefined) return options;
  return { ...options, headers: { ...headers, [name]: length } };
}
