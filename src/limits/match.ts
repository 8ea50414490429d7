import type { Pattern, Target } from "./pattern.js";

/** What is stored under each path prefix of one host. */
interface Paths<T> {
  readonly byPath: Map<string, T>;
  /** Length of the longest prefix, beyond which no lookup is worth while. */
  longest: number;
}

/**
 * Finds what was stored under the most specific pattern that covers a URL: the host with its port, the host, the
 * longest `*.host`, `*`; and among those of one host the longest path prefix, on whole segments.
 *
 * The cost depends on the labels and segments of the URL, not on how many patterns there are.
 */
export class PatternIndex<T> {
  readonly #exact: Map<string, Paths<T>> = new Map();
  readonly #wildcard: Map<string, Paths<T>> = new Map();
  #longestSuffix = 0;

  add(pattern: Pattern, value: T): void {
    const hosts = pattern.wildcard ? this.#wildcard : this.#exact;
    if (pattern.wildcard) this.#longestSuffix = Math.max(this.#longestSuffix, pattern.host.length);
    const host = pattern.port === undefined ? pattern.host : `${pattern.host}:${pattern.port}`;
    const paths = hosts.get(host) ?? { byPath: new Map<string, T>(), longest: 0 };
    paths.byPath.set(pattern.path, value);
    paths.longest = Math.max(paths.longest, pattern.path.length);
    hosts.set(host, paths);
  }

  find(target: Target): T | undefined {
    return atHost(this.#exact, target.host, target) ?? this.#bySuffix(target) ?? atHost(this.#wildcard, "", target);
  }

  #bySuffix(target: Target): T | undefined {
    const { host } = target;
    // From 1, because a wildcard covers one label at least, and a label is not empty.
    let dot = host.indexOf(".", Math.max(1, host.length - this.#longestSuffix - 1));
    for (; dot !== -1; dot = host.indexOf(".", dot + 1)) {
      const found = atHost(this.#wildcard, host.slice(dot + 1), target);
      if (found !== undefined) return found;
    }
    return undefined;
  }
}

function atHost<T>(hosts: Map<string, Paths<T>>, host: string, target: Target): T | undefined {
  return longestPrefix(hosts.get(`${host}:${target.port}`), target.path) ?? longestPrefix(hosts.get(host), target.path);
}

function longestPrefix<T>(paths: Paths<T> | undefined, path: string): T | undefined {
  if (paths === undefined) return undefined;
  let end = path.length > paths.longest ? path.lastIndexOf("/", paths.longest) : path.length;
  for (; end > 0; end = path.lastIndexOf("/", end - 1)) {
    const found = paths.byPath.get(path.slice(0, end));
    if (found !== undefined) return found;
  }
  return paths.byPath.get("");
}
