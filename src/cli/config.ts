import { readFile } from "node:fs/promises";
import { extname, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import {
  defineLimits,
  InvalidLimitError,
  type Limit,
  type LimitOptions,
  type Limits,
  type RedisOption,
  type RateObject,
} from "../index.js";
import { type RunArguments, UsageError } from "./arguments.js";

/** What a config file and the command line say together. */
export interface Setting {
  readonly limits: Limits;
  /** Undefined: an embedded Valkey. */
  readonly redis: RedisOption | undefined;
  readonly prefix: string;
}

interface Config {
  readonly limits: Limits;
  readonly redis?: RedisOption;
  readonly prefix?: string;
}

/** A named run is alone in its queues: nobody else may send its calls, and keep their results for a shorter time. */
const prefixOf = (name?: string): string =>
  name === undefined ? "spillway-run" : `spillway-run:${encodeURIComponent(name)}`;

/** The results of a named run wait so long to be written by a later run. */
const KEEP_NAMED_MS = 7 * 24 * 3_600_000;
/** What waits in a queue of our own, in ms of its rate: enough to never run dry, little to drop when the run is stopped. */
const AHEAD_MS = 2000;

/** @throws {UsageError} when there is no limit, or something is wrong with the config. */
export async function readSetting(given: RunArguments): Promise<Setting> {
  const config = given.config === undefined ? undefined : await loadConfig(given.config);
  const definition: Record<string, LimitOptions> = {};
  for (const name of config?.limits.names ?? []) {
    const limit = config?.limits.get(name);
    if (limit !== undefined) definition[limit.name] = toOptions(limit, given);
  }
  for (const [host, rate] of given.rates) {
    const known = config?.limits.get(host);
    const limit = known ?? defineLimits({ [host]: { rate, capacity: roomFor(rate) } }).get(host);
    if (limit !== undefined) definition[limit.name] = { ...toOptions(limit, given), rate };
  }
  if (Object.keys(definition).length === 0) {
    throw new UsageError(
      "No limit was given, and nothing is sent unthrottled: add --limit HOST=RATE, --rate RATE for all hosts, or --config",
    );
  }
  const redis = given.redis ?? config?.redis ?? (process.env["REDIS_URL"] || undefined);
  if (given.name !== undefined && redis === undefined) {
    throw new UsageError("--name needs a Redis that outlives the run: add --redis URL, or set REDIS_URL");
  }
  if (redis === undefined && process.env["NODE_ENV"] === "production") {
    throw new UsageError(
      "NODE_ENV is production: add --redis URL, or set REDIS_URL; there is no embedded default then",
    );
  }
  const prefix = given.prefix ?? config?.prefix ?? prefixOf(given.name);
  if (!/^[^{}\s]+$/.test(prefix)) throw new UsageError("Expected the prefix to be without braces and white space");
  return { limits: defineLimits(definition), redis, prefix };
}

function roomFor(rate: LimitOptions["rate"]): number {
  const parsed = defineLimits({ x: { rate } }).get("x")?.rate ?? { limit: 1, perMs: 1000 };
  return Math.min(1000, Math.max(10, Math.ceil((parsed.limit / parsed.perMs) * AHEAD_MS)));
}

/** A validated limit as the options that define it, with what the command line says instead. */
export function toOptions(limit: Limit, given: Pick<RunArguments, "retries" | "timeout" | "name">): LimitOptions {
  const {
    name: _name,
    latenessMs,
    maxWaitMs,
    timeoutMs,
    retry,
    redeliver,
    keepResultsMs,
    rate,
    rules,
    ...same
  } = limit;
  const { minBackoffMs, maxBackoffMs, afterRefusal, ...retryRest } = retry;
  const per = ({ limit: count, perMs, counts }: Limit["rate"]): RateObject => ({
    limit: count,
    per: perMs,
    ...(counts !== undefined && { counts }),
  });
  const { concurrency, key, headers, feedback, cost, admit, ...defined } = same;
  const attempts = given.retries === undefined ? retry.attempts : given.retries + 1;
  return {
    ...defined,
    rate: per(rate),
    rules: rules.map((one) => ("text" in one ? one.rule : per(one))),
    lateness: latenessMs,
    timeout: given.timeout ?? timeoutMs,
    retry:
      (afterRefusal || attempts > 1) && given.retries !== 0
        ? { ...retryRest, minBackoff: minBackoffMs, maxBackoff: maxBackoffMs, attempts }
        : false,
    keepResults: given.name === undefined ? keepResultsMs : Math.max(keepResultsMs, KEEP_NAMED_MS),
    ...(concurrency !== undefined && { concurrency }),
    ...(maxWaitMs !== undefined && { maxWait: maxWaitMs }),
    ...(key !== undefined && { key }),
    ...(cost !== undefined && { cost }),
    ...(admit !== undefined && { admit: admit.quota }),
    ...(redeliver !== undefined && {
      redeliver: { attempts: redeliver.attempts, backoff: redeliver.backoffMs, maxAge: redeliver.maxAgeMs },
    }),
    ...(feedback !== undefined && { feedback }),
    ...(headers !== undefined && { headers }),
  };
}

export async function loadConfig(file: string): Promise<Config> {
  const exported = await loadExport(file);
  if (!isRecord(exported))
    throw new UsageError(`${file}: expected its default export to be limits, got ${typeof exported}`);
  const { limits, redis, prefix } =
    "limits" in exported ? exported : { limits: exported, redis: undefined, prefix: undefined };
  if (prefix !== undefined && typeof prefix !== "string")
    throw new UsageError(`${file}: expected \`prefix\` to be a string`);
  return {
    limits: asLimits(file, limits),
    // Whatever ioredis takes; it says itself what is wrong with it.
    ...(redis !== undefined && redis !== "" && { redis: redis as RedisOption }),
    ...(prefix !== undefined && { prefix }),
  };
}

async function loadExport(file: string): Promise<unknown> {
  try {
    if (extname(file) === ".json") return JSON.parse(await readFile(file, "utf8"));
    const module: unknown = await import(pathToFileURL(resolve(file)).href);
    return isRecord(module) ? module["default"] : undefined;
  } catch (error) {
    const code = error instanceof Error && "code" in error ? error.code : undefined;
    if (code === "ERR_UNKNOWN_FILE_EXTENSION" && /\.[cm]?ts$/.test(file)) {
      throw new UsageError(
        `${file}: Node ${process.version} cannot load TypeScript; use Node 22.18 or later, or a .js file`,
      );
    }
    throw new UsageError(`Cannot load ${file}: ${error instanceof Error ? error.message : String(error)}`, {
      cause: error,
    });
  }
}

function asLimits(file: string, value: unknown): Limits {
  if (isLimits(value)) return value;
  try {
    // Validated by defineLimits, which takes what a caller of plain JavaScript may give.
    return defineLimits(value as Record<string, LimitOptions>);
  } catch (error) {
    if (error instanceof InvalidLimitError) throw new UsageError(`${file}: ${error.message}`);
    throw error;
  }
}

/** By its shape: the config may have loaded another copy of this package. */
function isLimits(value: unknown): value is Limits {
  return isRecord(value) && typeof value["match"] === "function" && Array.isArray(value["names"]);
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
