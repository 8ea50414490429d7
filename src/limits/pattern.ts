import { isIP } from "node:net";

/** The left side of a definition in its parts, each in normal form. */
export interface Pattern {
  /** The whole pattern in normal form; two spellings of one pattern have the same name. */
  readonly name: string;
  /** Whether it stands for many hosts: `*.host`, or `*`, whose `host` is empty. */
  readonly wildcard: boolean;
  readonly host: string;
  /** Undefined: any port. */
  readonly port: string | undefined;
  /** A path without trailing slash; empty for all paths. */
  readonly path: string;
}

/** What a URL is matched by, in the same normal form as a {@link Pattern}. */
export interface Target {
  readonly host: string;
  /** Never empty: a URL without port has that of its scheme. */
  readonly port: string;
  readonly path: string;
}

const EXAMPLES = '"api.example.com", "*.example.com", "localhost:8080", "api.example.com/search", "billing" or "*"';
const HOST_NAME = /^[a-z0-9_-]+(\.[a-z0-9_-]+)*$/;

/** What to answer to somebody who wrote no pattern. */
interface NoPattern {
  readonly expected: string;
}

/**
 * Reads `host`, `host:port`, each with or without a `/path` behind it. The host is a name, `*.` and a name, `*`, an
 * IPv4 address, or an IPv6 address in brackets. This is the one rule for the names of limits: a plain name such as
 * `billing` is the pattern of a host of that name.
 */
export function parsePattern(text: string): Pattern | NoPattern {
  const flaw = findFlaw(text);
  if (flaw !== undefined) return { expected: `a host pattern ${flaw}, such as ${EXAMPLES}` };
  const slash = text.indexOf("/");
  const authority = slash === -1 ? text : text.slice(0, slash);
  const [, prefix = "", rest = "", port] = /^(\*\.|\*(?=:|$))?(.*?)(?::(\d{1,5}))?$/.exec(authority) ?? [];
  const wildcard = prefix !== "";
  const host = prefix === "*" && rest === "" ? "" : normalizeHost(rest);
  if (host === undefined || (wildcard && isAddress(host))) return { expected: `a host pattern such as ${EXAMPLES}` };
  if (port !== undefined && !(Number(port) >= 1 && Number(port) <= 65_535)) {
    return { expected: `a host pattern with a port from 1 to 65535, such as ${EXAMPLES}` };
  }
  const path = slash === -1 ? "" : normalizePath(new URL(`http://host${text.slice(slash)}`).pathname);
  const parts = { wildcard, host, port: port === undefined ? undefined : String(Number(port)), path };
  return { name: nameOf(parts), ...parts };
}

/** The host, port and path of an http: or https: URL, or undefined when its host is none. */
export function targetOf(url: URL): Target | undefined {
  const host = withoutFinalDot(url.hostname);
  if (host === "") return undefined;
  const port = url.port === "" ? defaultPort(url.protocol) : url.port;
  return { host, port, path: normalizePath(url.pathname) };
}

/** How a bucket calls a host: with its port, unless that is the default one of http or https. */
export function hostLabel(host: string, port: string): string {
  return port === "80" || port === "443" ? host : `${host}:${port}`;
}

function defaultPort(protocol: string): string {
  return protocol === "http:" ? "80" : "443";
}

function nameOf({ wildcard, host, port, path }: Omit<Pattern, "name">): string {
  const star = wildcard ? (host === "" ? "*" : "*.") : "";
  return `${star}${host}${port === undefined ? "" : `:${port}`}${path}`;
}

/** The common mistakes, each with the words that help most. */
function findFlaw(text: unknown): string | undefined {
  // Names come from callers of plain JavaScript, too.
  if (typeof text !== "string" || text === "") return "that is not empty";
  if (/^[a-z][a-z0-9+.-]*:?\/\//i.test(text)) return "without a scheme";
  if (/[\s\p{Cc}\\]/u.test(text)) return "without whitespace and backslashes";
  if (/[?#]/.test(text)) return "without query and fragment";
  if (/^[^/]*@/.test(text)) return "without user and password";
  if (/\*/.test(text.replace(/^\*(?=[.:/]|$)/, ""))) {
    return "with no * but a whole first label (a path is a prefix and needs none)";
  }
  return undefined;
}

/** Lower case, punycode, compressed IPv6: as URL does it, so that patterns and URLs compare as text. */
function normalizeHost(text: string): string | undefined {
  // URL would read "a:" as a host and an empty port.
  if (text.includes(":") && !/^\[[^\]]*\]$/.test(text)) return undefined;
  try {
    const host = withoutFinalDot(new URL(`http://${text}`).hostname);
    return HOST_NAME.test(host) || isAddress(host) ? host : undefined;
  } catch {
    return undefined;
  }
}

function isAddress(host: string): boolean {
  return host.startsWith("[") || isIP(host) !== 0;
}

function withoutFinalDot(host: string): string {
  return host.endsWith(".") ? host.slice(0, -1) : host;
}

/**
 * A path as the server reads it (RFC 3986, 6.2.2): URL resolves the dot segments, but leaves `%73earch` as it is,
 * which is `search`. A trailing slash is dropped.
 */
function normalizePath(pathname: string): string {
  let end = pathname.length;
  while (pathname[end - 1] === "/") end--;
  return pathname.slice(0, end).replace(/%[0-9a-f]{2}/gi, (escape) => {
    const character = String.fromCharCode(Number.parseInt(escape.slice(1), 16));
    return /[\w.~-]/.test(character) ? character : escape.toUpperCase();
  });
}
