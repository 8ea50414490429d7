import type { CallInit } from "../index.js";
import type { Line } from "./lines.js";

/** One line of the input that is a call. */
export interface Call {
  readonly line: number;
  /** The `id` that the line gives. */
  readonly id: string | undefined;
  readonly url: string;
  readonly init: CallInit & { readonly headers: [string, string][] };
  /** The line as it was. */
  readonly text: string;
}

/** A line that is no call. */
export interface InvalidLine {
  readonly line: number;
  readonly invalid: string;
}

const FIELDS = new Set(["url", "method", "headers", "body", "id"]);

/**
 * Reads one line of the input; undefined for an empty one and for a comment.
 *
 * @param added headers for lines that have none of that name; in lower case.
 */
export function parseLine(
  { number: line, text }: Line,
  added: readonly (readonly [string, string])[] = [],
): Call | InvalidLine | undefined {
  if (text === undefined) return { line, invalid: "the line is too long" };
  const trimmed = text.trim();
  if (trimmed === "" || trimmed.startsWith("#")) return undefined;
  try {
    const fields = trimmed.startsWith("{") ? parseObject(trimmed) : { url: trimmed };
    const { url, method, id } = fields;
    if (typeof url !== "string" || !isUrl(url))
      throw new LineError(`expected an http: or https: URL, got ${show(url)}`);
    if (method !== undefined && typeof method !== "string") throw new LineError("expected `method` to be a string");
    const headers = readHeaders(fields.headers);
    const given = checkHeaders(headers);
    for (const [name, value] of added) if (!given.has(name)) headers.push([name, value]);
    const body = readBody(fields.body, headers);
    const init = {
      headers,
      method: method ?? (body === undefined ? "GET" : "POST"),
      ...(body !== undefined && { body }),
    };
    return { line, id: readId(id), url, init, text: trimmed };
  } catch (error) {
    if (error instanceof LineError) return { line, invalid: error.message };
    throw error;
  }
}

class LineError extends Error {}

interface Fields {
  readonly url?: unknown;
  readonly method?: unknown;
  readonly headers?: unknown;
  readonly body?: unknown;
  readonly id?: unknown;
}

function parseObject(text: string): Fields {
  let parsed: object;
  try {
    // It begins with a brace, so that it is an object or an error.
    parsed = JSON.parse(text) as object;
  } catch (error) {
    throw new LineError(`no JSON: ${error instanceof Error ? error.message : String(error)}`);
  }
  const unknown = Object.keys(parsed).find((field) => !FIELDS.has(field));
  if (unknown !== undefined) {
    throw new LineError(`no field \`${unknown}\`: the fields are ${[...FIELDS].join(", ")}`);
  }
  return parsed;
}

function isUrl(text: string): boolean {
  return URL.canParse(text) && /^https?:/i.test(text);
}

function readHeaders(value: unknown): [string, string][] {
  if (value === undefined || value === null) return [];
  if (typeof value !== "object" || Array.isArray(value)) throw new LineError("expected `headers` to be an object");
  return Object.entries(value).flatMap(([name, values]: [string, unknown]) =>
    [values].flat().map((one): [string, string] => {
      if (typeof one === "string" || typeof one === "number") return [name, String(one)];
      throw new LineError(`expected header \`${name}\` to be a string`);
    }),
  );
}

function checkHeaders(headers: [string, string][]): Headers {
  try {
    return new Headers(headers);
  } catch (error) {
    throw new LineError(`no headers: ${error instanceof Error ? error.message : String(error)}`);
  }
}

function readBody(value: unknown, headers: [string, string][]): string | undefined {
  if (value === undefined || value === null) return undefined;
  const json = typeof value === "object";
  if (!json && typeof value !== "string") throw new LineError("expected `body` to be a string, an object or an array");
  const typed = headers.some(([name]) => name.toLowerCase() === "content-type");
  if (json && !typed) headers.push(["content-type", "application/json"]);
  return json ? JSON.stringify(value) : value;
}

function readId(value: unknown): string | undefined {
  if (value === undefined || value === null) return undefined;
  if (typeof value === "number") return String(value);
  if (typeof value === "string" && value !== "") return value;
  throw new LineError("expected `id` to be a string that is not empty, or a number");
}

/** Errors are logged, and a query may hold a token. */
function show(value: unknown): string {
  if (typeof value !== "string") return value === undefined ? "none" : `a ${typeof value}`;
  const text = value.replace(/[?#].*/s, "?…");
  return JSON.stringify(text.length > 80 ? `${text.slice(0, 80)}…` : text);
}
