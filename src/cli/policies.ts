import { extname } from "node:path";
import { defineLimits, type Duration, InvalidLimitError, type LimitOptions, type Limits, type Rule } from "../index.js";
import { numberOr, UsageError } from "./arguments.js";
import { loadConfig, toOptions } from "./config.js";
import type { SimulateArguments } from "./simulate-arguments.js";

/** Limits to be tried, under a name. */
export interface NamedPolicy {
  readonly name: string;
  readonly limits: Limits;
}

type Definition = Record<string, LimitOptions>;

const MODULES = [".js", ".mjs", ".cjs", ".json", ".ts", ".mts"];

/** The policy of --config and --limit, and those of --compare. @throws {UsageError} */
export async function readPolicies(given: SimulateArguments): Promise<NamedPolicy[]> {
  const base = given.config === undefined ? {} : definitionOf((await loadConfig(given.config)).limits);
  for (const text of given.limits) addLimit(base, text);
  if (Object.keys(base).length === 0) {
    throw new UsageError("No limit was given: add --limit 'HOST=RATE', --rate RATE for all hosts, or --config FILE");
  }
  const policies = [{ name: given.compare.length === 0 ? "simulated" : "base", limits: defineLimits(base) }];
  for (const text of given.compare) {
    const policy = await readPolicy(base, text);
    if (policies.some(({ name }) => name === policy.name)) {
      throw new UsageError(`Two policies are called ${policy.name}: give one a name, as in --compare 'other: 5/s'`);
    }
    policies.push(policy);
  }
  return policies;
}

/** `NAME: ` before it or not: a file of limits, or what is different from the base. */
async function readPolicy(base: Definition, text: string): Promise<NamedPolicy> {
  const [, named, rest = text] = /^([^:]+):\s+(.*)$/s.exec(text) ?? [];
  const name = (named ?? text).trim();
  if (MODULES.includes(extname(rest))) return { name, limits: (await loadConfig(rest.trim())).limits };
  const option = `--compare '${text}'`;
  const changes = readChanges(option, words(rest));
  const changed = Object.entries(base).map(([host, limit]) => [host, { ...limit, ...changes }] as const);
  return { name, limits: checked(option, () => defineLimits(Object.fromEntries(changed))) };
}

function definitionOf(limits: Limits): Definition {
  const unchanged = { retries: undefined, timeout: undefined, name: undefined };
  const known = limits.names.flatMap((name) => limits.get(name) ?? []);
  return Object.fromEntries(known.map((limit) => [limit.name, toOptions(limit, unchanged)]));
}

/** `HOST=RATE`, and options behind it: changes a limit of the config, or adds one. */
function addLimit(definition: Definition, text: string): void {
  const option = `--limit '${text}'`;
  const [first = "", ...rest] = words(text);
  // From the right: a path may hold the sign, a rate cannot.
  const at = first.lastIndexOf("=");
  if (at < 1) throw new UsageError(`Expected --limit 'HOST=RATE', such as 'api.example.com=10/s burst=5', got ${text}`);
  const changes = readChanges(option, [first.slice(at + 1), ...rest]);
  const { rate } = changes;
  if (rate === undefined) throw new UsageError(`${option}: expected a rate behind the host`);
  const host = first.slice(0, at);
  const limit = checked(option, () => defineLimits({ [host]: { rate, ...changes } }).get(host));
  if (limit !== undefined) definition[limit.name] = { ...definition[limit.name], rate, ...changes };
}

const words = (text: string): string[] => text.trim().split(/\s+/);

/** Whatever was typed: `defineLimits` checks it, and says what it expected. */
const READERS: Readonly<Record<string, (text: string) => Partial<LimitOptions>>> = {
  rate: (text) => ({ rate: text as `${number}/s` }),
  burst: (text) => ({ burst: Number(text) }),
  rules: (text) => ({ rules: text === "" ? [] : (text.split(",") as Rule[]) }),
  capacity: (text) => ({ capacity: Number(text) }),
  overflow: (text) => ({ overflow: text as "reject" }),
  concurrency: (text) => ({ concurrency: Number(text) }),
  lateness: (text) => ({ lateness: numberOr(text) as Duration }),
  maxWait: (text) => ({ maxWait: numberOr(text) as Duration }),
};

/** A rate, or `OPTION=VALUE`, in any order. */
function readChanges(option: string, parts: readonly string[]): Partial<LimitOptions> {
  const changes = parts.map((part) => {
    const [, name = "rate", value = part] = /^(\w+)=(.*)$/.exec(part) ?? [];
    const read = READERS[name];
    if (read !== undefined) return read(value);
    throw new UsageError(`${option}: expected one of ${Object.keys(READERS).join(", ")}, got ${name}`);
  });
  return checked(option, () => {
    const merged = Object.assign({}, ...changes) as Partial<LimitOptions>;
    defineLimits({ limit: { rate: "1/s", ...merged } });
    return merged;
  });
}

function checked<T>(option: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof InvalidLimitError)) throw error;
    const [, name = error.option] = /\.(\w+)(?:\[|$)/.exec(error.option) ?? [];
    throw new UsageError(`${option}: expected ${name} to be ${error.expected}`);
  }
}
