import { parseArgs } from "node:util";
import { defineLimits, InvalidLimitError, type LimitOptions } from "../index.js";

/** What was asked for cannot be done, and nothing has been sent: the message is for whoever typed it. */
export class UsageError extends Error {}

/** What was typed as a number, or else is to be read by whoever gets it. */
export const numberOr = (text: string): string | number => (/^\d+(\.\d+)?$/.test(text) ? Number(text) : text);

/** The command line of `spillway run`, checked. */
export interface RunArguments {
  /** Undefined: stdin. */
  readonly file: string | undefined;
  /** Rates by pattern, in the order given. */
  readonly rates: ReadonlyMap<string, LimitOptions["rate"]>;
  readonly config: string | undefined;
  readonly headers: readonly (readonly [string, string])[];
  readonly retries: number | undefined;
  readonly timeout: LimitOptions["timeout"];
  readonly concurrency: number | undefined;
  /** Undefined: stdout. */
  readonly output: string | undefined;
  readonly bodies: string | undefined;
  readonly name: string | undefined;
  readonly redis: string | undefined;
  readonly prefix: string | undefined;
  readonly quiet: boolean;
}

const OPTIONS = {
  help: { type: "boolean", short: "h" },
  limit: { type: "string", short: "l", multiple: true },
  rate: { type: "string", short: "r" },
  config: { type: "string", short: "c" },
  header: { type: "string", short: "H", multiple: true },
  retries: { type: "string" },
  timeout: { type: "string" },
  concurrency: { type: "string" },
  output: { type: "string", short: "o" },
  bodies: { type: "string" },
  name: { type: "string", short: "n" },
  redis: { type: "string" },
  prefix: { type: "string" },
  quiet: { type: "boolean", short: "q" },
} as const;

/** @returns undefined when help was asked for. @throws {UsageError} */
export function parseRunArguments(argv: readonly string[]): RunArguments | undefined {
  const { values, positionals } = parse(argv);
  if (values.help === true) return undefined;
  const [file = "-", ...others] = positionals;
  if (others.length > 0) throw new UsageError(`Expected one FILE, got ${positionals.length}: ${positionals.join(" ")}`);
  const output = values.output === "-" ? undefined : values.output;
  if (values.name !== undefined) checkName(values.name, output);
  return {
    file: file === "-" ? undefined : file,
    rates: readRates(values.limit ?? [], values.rate),
    config: values.config,
    headers: (values.header ?? []).map(readHeader),
    retries: readInteger("--retries", values.retries, 0, 99),
    timeout: readTimeout(values.timeout),
    concurrency: readInteger("--concurrency", values.concurrency, 1, 1_000_000),
    output,
    bodies: values.bodies,
    name: values.name,
    redis: values.redis,
    prefix: values.prefix,
    quiet: values.quiet ?? false,
  };
}

function parse(argv: readonly string[]) {
  try {
    return parseArgs({ args: [...argv], options: OPTIONS, allowPositionals: true });
  } catch (error) {
    throw error instanceof Error ? new UsageError(error.message) : error;
  }
}

function checkName(name: string, output: string | undefined): void {
  if (name.trim() === "") throw new UsageError("Expected --name to be a name, got an empty one");
  if (output === undefined) {
    throw new UsageError("--name needs -o FILE: the results in it tell a later run what has been done");
  }
}

function readRates(limits: readonly string[], rate: string | undefined): Map<string, LimitOptions["rate"]> {
  const rates = new Map<string, LimitOptions["rate"]>();
  if (rate !== undefined) rates.set("*", checkRate(`--rate ${rate}`, "*", rate));
  for (const text of limits) {
    // From the right: a path may hold the sign, a rate cannot.
    const at = text.lastIndexOf("=");
    if (at < 1) throw new UsageError(`Expected --limit HOST=RATE, such as api.example.com=10/s, got ${text}`);
    const host = text.slice(0, at);
    if (rates.has(host)) throw new UsageError(`Two limits were given for ${host}`);
    rates.set(host, checkRate(`--limit ${text}`, host, text.slice(at + 1)));
  }
  return rates;
}

function checkRate(option: string, host: string, text: string): LimitOptions["rate"] {
  return checked(option, () => {
    const limits = defineLimits({ [host]: { rate: text as `${number}/s` } });
    const { limit, perMs } = limits.get(host)?.rate ?? { limit: 0, perMs: 0 };
    return { limit, per: perMs };
  });
}

function readTimeout(text: string | undefined): LimitOptions["timeout"] {
  if (text === undefined) return undefined;
  return checked(
    `--timeout ${text}`,
    () => defineLimits({ x: { rate: "1/s", timeout: text as "1s" } }).get("x")?.timeoutMs,
  );
}

function checked<T>(option: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (error instanceof InvalidLimitError) throw new UsageError(`${option}: expected ${error.expected}`);
    throw error;
  }
}

function readInteger(option: string, text: string | undefined, min: number, max: number): number | undefined {
  if (text === undefined) return undefined;
  const value = Number(text);
  if (/^\d+$/.test(text) && value >= min && value <= max) return value;
  throw new UsageError(`Expected ${option} to be a whole number from ${min} to ${max}, got ${text}`);
}

function readHeader(text: string): readonly [string, string] {
  const [, name = "", value = ""] = /^([^:\s]+):(.*)$/s.exec(text) ?? [];
  try {
    const [header] = new Headers([[name, value.trim()]]);
    if (header !== undefined) return header;
  } catch {
    // Said below, without the value, which may be a secret.
  }
  throw new UsageError(`Expected --header 'NAME: VALUE', got one with the name ${JSON.stringify(name)}`);
}
