import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { pipeline, Readable } from "node:stream";
import { CsvError, parse } from "csv-parse";
import { type Arrival, type Duration, InvalidCallError } from "../index.js";
import { milliseconds } from "../simulate/arrival.js";
import { numberOr, UsageError } from "./arguments.js";
import { readLines } from "./lines.js";
import type { SimulateArguments } from "./simulate-arguments.js";

/** One of a file, its time in milliseconds. */
type ReadArrival = Arrival & { readonly at: number };

/** Gives the arrivals of a file, as often as they are asked for. */
export type Arrivals = () => Iterable<ReadArrival> | AsyncIterable<ReadArrival>;

const MAX_LINE = 1024 * 1024;
/** A clock that begins at 0 would be at 11 days, so these are the seconds since 1970 of 2001 to 2286. */
const SECONDS = { from: 1e9, to: 1e10 };

/** @throws {UsageError} when there is nothing to read. */
export async function openArrivals(given: SimulateArguments, times: number): Promise<Arrivals> {
  const { file, sort } = given;
  if (file !== undefined) await mustBeFile(file);
  else if (process.stdin.isTTY) {
    throw new UsageError("No FILE was given, and stdin is a terminal: see spillway simulate --help");
  }
  const read = (): AsyncGenerator<ReadArrival> =>
    readArrivals(file === undefined ? process.stdin : createReadStream(file, { highWaterMark: 1 << 18 }), given);
  if (!sort && (file !== undefined || times === 1)) return read;
  const all: ReadArrival[] = [];
  for await (const arrival of read()) all.push(arrival);
  if (sort) all.sort((one, other) => one.at - other.at);
  return () => all;
}

async function mustBeFile(file: string): Promise<void> {
  const stats = await stat(file).catch((error: Error) => {
    throw new UsageError(`Cannot read ${file}: ${error.message}`);
  });
  if (stats.isDirectory()) throw new UsageError(`Cannot read ${file}: it is a directory`);
}

/** CSV with a header, or JSON Lines: these begin with a brace. (What begins with a bracket is an array that was to be lines.) */
export async function* readArrivals(
  source: AsyncIterable<Uint8Array>,
  given: Pick<SimulateArguments, "file" | "seconds">,
): AsyncGenerator<ReadArrival> {
  const name = given.file ?? "stdin";
  const chunks = source[Symbol.asyncIterator]();
  const first = await chunks.next();
  if (first.done === true) return;
  const rest = async function* (): AsyncGenerator<Uint8Array> {
    yield first.value;
    for (let next = await chunks.next(); next.done !== true; next = await chunks.next()) yield next.value;
  };
  const isJson = /^\uFEFF?\s*[{[]/.test(Buffer.from(first.value.subarray(0, 1024)).toString());
  let isFirst = true;
  for await (const { record, place } of isJson ? jsonLines(rest()) : csv(rest(), name)) {
    try {
      if (record === undefined) throw new UsageError("expected a JSON object");
      const arrival = toArrival(record, given.seconds);
      if (isFirst && !given.seconds) mustNotBeSeconds(arrival.at);
      isFirst = false;
      yield { ...arrival, at: milliseconds(arrival.at) };
    } catch (error) {
      const isWrong = error instanceof UsageError || error instanceof InvalidCallError;
      throw isWrong ? new UsageError(`${name}, ${place}: ${error.message}`) : error;
    }
  }
}

interface Entry {
  /** Undefined: there is none at that place. */
  readonly record: Readonly<Record<string, unknown>> | undefined;
  readonly place: string;
}

async function* csv(chunks: AsyncIterable<Uint8Array>, name: string): AsyncGenerator<Entry> {
  const parser = parse({ columns: true, bom: true, trim: true, skip_empty_lines: true, info: true });
  // Whatever goes wrong with either of them comes out of the parser.
  pipeline(Readable.from(chunks), parser, () => {});
  try {
    for await (const { record, info } of parser as AsyncIterable<{
      record: Record<string, string>;
      info: { lines: number };
    }>) {
      yield { record, place: `line ${info.lines}` };
    }
  } catch (error) {
    throw error instanceof CsvError ? new UsageError(`${name}: ${error.message}`) : error;
  }
}

async function* jsonLines(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Entry> {
  for await (const { number, text } of readLines(chunks, MAX_LINE)) {
    if (text?.trim() === "") continue;
    yield { record: text === undefined ? undefined : parseJson(text), place: `line ${number}` };
  }
}

function parseJson(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? { ...value } : undefined;
  } catch {
    return undefined;
  }
}

/** Only the types are checked here; `simulate` says what else is wrong. An empty cell is none. */
function toArrival(record: Readonly<Record<string, unknown>>, seconds: boolean): Arrival {
  const value = (name: string): string | number | undefined => {
    const found = record[name] ?? "";
    if (typeof found === "string") return found === "" ? undefined : numberOr(found);
    if (typeof found === "number") return found;
    throw new UsageError(`expected ${name} to be a text or a number`);
  };
  const text = (name: string): string | undefined => {
    const found = record[name];
    return typeof found === "string" && found !== "" ? found : value(name)?.toString();
  };
  const at = value("at");
  if (at === undefined) throw new UsageError("expected a time under the name `at`");
  const terms = {
    url: text("url"),
    method: text("method"),
    limit: text("limit"),
    key: text("key"),
    producer: text("producer"),
    body: text("body"),
    headers: record["headers"] === undefined || record["headers"] === "" ? undefined : record["headers"],
    priority: text("priority"),
    cost: value("cost"),
    maxWait: value("maxWait") as Duration | undefined,
    duration: value("duration") as Duration | undefined,
  };
  const named = Object.entries(terms).filter(([, one]) => one !== undefined);
  return { at: seconds && typeof at === "number" ? at * 1000 : at, ...Object.fromEntries(named) };
}

function mustNotBeSeconds(at: Arrival["at"]): void {
  if (typeof at !== "number" || at < SECONDS.from || at >= SECONDS.to) return;
  throw new UsageError(`the time ${at} looks like seconds since 1970, and milliseconds are expected: add --seconds`);
}
