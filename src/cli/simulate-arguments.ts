import { parseArgs } from "node:util";
import { UsageError } from "./arguments.js";

/** The command line of `spillway simulate`; limits and policies are read when their file is (see policies.ts). */
export interface SimulateArguments {
  /** Undefined: stdin. */
  readonly file: string | undefined;
  readonly limits: readonly string[];
  readonly config: string | undefined;
  readonly compare: readonly string[];
  /** Where a line for each call goes. */
  readonly output: string | undefined;
  readonly svg: string | undefined;
  readonly json: boolean;
  /** Times that are numbers are seconds, not milliseconds. */
  readonly seconds: boolean;
  readonly sort: boolean;
  readonly redis: string | undefined;
  readonly prefix: string | undefined;
}

const OPTIONS = {
  help: { type: "boolean", short: "h" },
  limit: { type: "string", short: "l", multiple: true },
  rate: { type: "string", short: "r" },
  config: { type: "string", short: "c" },
  compare: { type: "string", multiple: true },
  output: { type: "string", short: "o" },
  svg: { type: "string" },
  json: { type: "boolean" },
  seconds: { type: "boolean" },
  sort: { type: "boolean" },
  redis: { type: "string" },
  prefix: { type: "string" },
} as const;

/** @returns undefined when help was asked for. @throws {UsageError} */
export function parseSimulateArguments(argv: readonly string[]): SimulateArguments | undefined {
  const { values, positionals } = parse(argv);
  if (values.help === true) return undefined;
  const [file = "-", ...others] = positionals;
  if (others.length > 0) throw new UsageError(`Expected one FILE, got ${positionals.length}: ${positionals.join(" ")}`);
  const { limit = [], rate, config, compare = [], output, svg, redis, prefix } = values;
  if (output === "-" || svg === "-") throw new UsageError("Expected a FILE, as the table goes to stdout");
  if (prefix !== undefined && !/^[^{}\s]+$/.test(prefix)) {
    throw new UsageError("Expected the prefix to be without braces and white space");
  }
  return {
    file: file === "-" ? undefined : file,
    limits: rate === undefined ? limit : [`*=${rate}`, ...limit],
    config,
    compare,
    output,
    svg,
    json: values.json ?? false,
    seconds: values.seconds ?? false,
    sort: values.sort ?? false,
    redis,
    prefix,
  };
}

function parse(argv: readonly string[]) {
  try {
    return parseArgs({ args: [...argv], options: OPTIONS, allowPositionals: true });
  } catch (error) {
    throw error instanceof Error ? new UsageError(error.message) : error;
  }
}
