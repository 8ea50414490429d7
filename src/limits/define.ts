import { InvalidCallError, InvalidLimitError, UnknownHostError } from "../errors.js";
import { ask } from "./ask.js";
import { bucketName, limitPart, parseBucketName } from "./bucket.js";
import { isRecord } from "./check.js";
import { PatternIndex } from "./match.js";
import { normalizeLimit } from "./normalize.js";
import type { Limit, LimitOptions } from "./options.js";
import { hostLabel, parsePattern, type Pattern, targetOf } from "./pattern.js";

/** One bucket, and the limit that governs it. */
export interface BucketRef {
  readonly limit: Limit;
  /** Unique among all buckets, printable ASCII, at most 200 characters, without `:`, `{` and `}`. */
  readonly bucket: string;
  /** Which host of a wildcard limit; undefined for other limits, and where a long bucket name no longer tells. */
  readonly host: string | undefined;
  /** What `key` returned or the caller gave; undefined without key, and where a long bucket name no longer tells. */
  readonly key: string | undefined;
}

/** What {@link Limits.match} knows of a request beside its URL. */
export interface RequestHints {
  /** @default "GET" */
  readonly method?: string | undefined;
  /** @default none */
  readonly headers?: Headers | undefined;
}

/** Limits after validation, as `createClient` and `createWorker` take them. */
export interface Limits<Name extends string = string> {
  /** The patterns as they were declared. */
  readonly names: readonly Name[];
  /**
   * The bucket of a request.
   *
   * @throws {UnknownHostError} when no limit covers the host.
   * @throws {InvalidCallError} when this is no http: or https: URL, or `key` failed, or did not return a
   *   non-empty string.
   */
  match(url: string | URL, request?: RequestHints): BucketRef;
  /**
   * The bucket that a name and a key stand for. The name is a declared pattern, or a host that a wildcard covers
   * (`"shop1.myshopify.com"`). Of a wildcard named as such (`"*.myshopify.com"`), the key says which host is meant.
   *
   * @throws {UnknownHostError} when there is no such limit, or the wildcard does not govern that host.
   * @throws {InvalidCallError} when the limit has a bucket for each key or host and none was named.
   */
  resolve(name: string, key?: string): BucketRef;
  /** The limit of a declared pattern, in whatever spelling. */
  get(name: string): Limit | undefined;
  /** The limit, host and key of a bucket's name; undefined for a limit that is not declared here. */
  ofBucket(bucket: string): BucketRef | undefined;
}

/** Names that stand for a pattern: itself and, for a wildcard, every host that it covers. */
type NamesOf<Name extends string> = Name extends "*"
  ? string
  : Name extends `*.${infer Suffix}`
    ? Name | `${string}.${Suffix}` | WithPort<Suffix>
    : Name;
type WithPort<Suffix extends string> = Suffix extends `${string}${":" | "/"}${string}`
  ? never
  : `${string}.${Suffix}:${number}`;

/**
 * The names that `run` and `limit` take for these limits; any string when the names are not known at compile time.
 * `NoInfer`: a name that is passed must not count as one that was declared.
 */
export type LimitName<L extends Limits> = NoInfer<L extends Limits<infer Name> ? NamesOf<Name> : never>;

interface Entry {
  readonly pattern: Pattern;
  readonly limit: Limit;
}

/**
 * Declares limits by host pattern, and validates them.
 *
 * A pattern is `host`, `host:port`, `*.host` (each host under it has its own bucket; the host itself is not covered)
 * or `*` (any other host, each its own bucket), with or without a `/path` prefix of whole segments. Without port it
 * covers every port. The most specific pattern governs a URL: host with port, host, longest `*.host`, `*`, and within
 * one host the longest path. Case, a trailing dot or slash, Unicode or punycode make no difference to a host; the case
 * of a path does. A plain name such as `billing`, for `run` only, is the pattern of a host that no URL names.
 *
 * @throws {InvalidLimitError} for a bad or repeated pattern and for an unknown or wrong option.
 */
export function defineLimits<const Name extends string>(definition: {
  readonly [N in Name]: LimitOptions;
}): Limits<Name> {
  if (!isRecord(definition) || Object.keys(definition).length === 0) {
    throw new InvalidLimitError("limits", 'an object such as { "api.example.com": { rate: "10/s" } }', definition);
  }
  const byName = new Map<string, Entry>();
  const byPart = new Map<string, Entry>();
  const index = new PatternIndex<Entry>();
  const names: Name[] = [];
  for (const declared in definition) {
    const pattern = readPattern(declared, byName);
    const entry = { pattern, limit: normalizeLimit(pattern.name, declared, definition[declared]) };
    names.push(declared);
    byName.set(pattern.name, entry);
    byPart.set(limitPart(pattern.name), entry);
    index.add(pattern, entry);
  }
  const named = (name: string): Entry | undefined => {
    const pattern = parsePattern(name);
    return "name" in pattern ? byName.get(pattern.name) : undefined;
  };
  return Object.freeze({
    names: Object.freeze(names),
    match: (url: string | URL, request?: RequestHints) => matchRequest(index, url, request),
    resolve: (name: string, key?: string) => resolveName(index, named(name), name, key),
    get: (name: string) => named(name)?.limit,
    ofBucket: (bucket: string) => readBucket(byPart, bucket),
  });
}

function readPattern(declared: string, known: ReadonlyMap<string, Entry>): Pattern {
  const pattern = parsePattern(declared);
  if (!("name" in pattern)) throw new InvalidLimitError("name of a limit", pattern.expected, declared);
  if (known.has(pattern.name)) {
    throw new InvalidLimitError("name of a limit", `unique, and "${pattern.name}" is declared already`, declared);
  }
  return pattern;
}

function matchRequest(index: PatternIndex<Entry>, input: string | URL, request: RequestHints = {}): BucketRef {
  const url = parseUrl(input);
  const target = targetOf(url);
  const entry = target && index.find(target);
  if (target === undefined || entry === undefined) throw new UnknownHostError(url.host);
  const { key } = entry.limit;
  const { method = "GET", headers = new Headers() } = request;
  const label = hostLabel(target.host, target.port);
  return refer(entry, label, key && ask("key", () => key({ url, method, headers })));
}

function parseUrl(input: string | URL): URL {
  let url: URL;
  try {
    // A copy even of a URL, which may be of another realm, and which a `key` function could change.
    url = new URL(String(input));
  } catch {
    // A query may hold a token, and errors are logged; the error of URL, which quotes it all, is no cause either.
    const shown = typeof input === "string" ? JSON.stringify(input.replace(/[?#].*/s, "?…")) : typeof input;
    throw new InvalidCallError(`Expected an absolute http: or https: URL, got ${shown}`);
  }
  if (url.protocol === "http:" || url.protocol === "https:") return url;
  throw new InvalidCallError(`Expected an http: or https: URL, got one of "${url.protocol}"`);
}

function resolveName(
  index: PatternIndex<Entry>,
  declared: Entry | undefined,
  name: string,
  key: string | undefined,
): BucketRef {
  if (declared === undefined) return resolveHost(index, name, undefined, key);
  if (!declared.pattern.wildcard) return refer(declared, undefined, key);
  if (key === undefined) {
    throw new InvalidCallError(`Limit "${name}" has a bucket for each host: give a host in place of the pattern`);
  }
  return resolveHost(index, key, declared, undefined);
}

/** The bucket of a host that a wildcard covers: of `expected`, or of any that has the path of the name. */
function resolveHost(
  index: PatternIndex<Entry>,
  name: string,
  expected: Entry | undefined,
  key: string | undefined,
): BucketRef {
  const named = parsePattern(name);
  if (!("name" in named) || named.wildcard) throw new UnknownHostError(name);
  const port = named.port ?? expected?.pattern.port ?? "443";
  const path = expected === undefined ? named.path : named.path + expected.pattern.path;
  const entry = index.find({ host: named.host, port, path });
  const governs = entry !== undefined && entry.pattern.wildcard && entry.pattern.path === path;
  if (!governs || (expected !== undefined && entry !== expected)) throw new UnknownHostError(name);
  return refer(entry, hostLabel(named.host, port), key);
}

function refer(entry: Entry, hostOfUrl: string | undefined, key: string | undefined): BucketRef {
  const { limit, pattern } = entry;
  const host = pattern.wildcard ? hostOfUrl : undefined;
  if (key === undefined && limit.key !== undefined) throw new InvalidCallError(keyMissing(limit.name));
  if (key !== undefined) checkKey(limit.name, key);
  const rest = [host, key].filter((part) => part !== undefined);
  return { limit, bucket: bucketName(limit.name, rest), host, key };
}

const keyMissing = (name: string): string => `Limit "${name}" has a bucket for each key: expected a key, got none`;

function checkKey(name: string, key: unknown): void {
  if (typeof key !== "string" || key === "") {
    throw new InvalidCallError(`Expected the key of limit "${name}" to be a non-empty string, got ${typeof key}`);
  }
  if (/\p{Surrogate}/u.test(key)) {
    throw new InvalidCallError(`Expected the key of limit "${name}" to be well-formed Unicode`);
  }
}

function readBucket(byPart: ReadonlyMap<string, Entry>, bucket: string): BucketRef | undefined {
  const parts = parseBucketName(bucket);
  const entry = byPart.get(parts.limit);
  if (entry === undefined) return undefined;
  const rest = [...(parts.rest ?? [])];
  const host = entry.pattern.wildcard ? rest.shift() : undefined;
  return { limit: entry.limit, bucket, host, key: rest.shift() };
}
