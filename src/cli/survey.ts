import { type Limits, UnknownHostError } from "../index.js";
import { UsageError } from "./arguments.js";
import type { Earlier } from "./resume.js";
import type { Source } from "./source.js";

/** What is known of a file before anything is sent. */
export interface Survey {
  readonly total: number;
  /** Calls still to be made, by bucket. */
  readonly byBucket: ReadonlyMap<string, number>;
}

/** So many buckets and hosts are told apart. */
const MOST_BUCKETS = 10_000;
const MOST_HOSTS = 10;

/**
 * Reads the file once, so that a host without a limit is known before anything is sent, and the end of the run is known
 * for each limit.
 *
 * @throws {UsageError} for hosts without a limit.
 */
export async function survey(source: Source, limits: Limits, earlier: Earlier): Promise<Survey> {
  const byBucket = new Map<string, number>();
  const unknown = new Map<string, number>();
  let total = 0;
  for await (const call of source.calls()) {
    total++;
    if ("invalid" in call || earlier.has(call.id ?? call.line, call.url)) continue;
    try {
      const { bucket } = limits.match(call.url, { method: call.init.method, headers: new Headers(call.init.headers) });
      const known = byBucket.get(bucket);
      if (known !== undefined || byBucket.size < MOST_BUCKETS) byBucket.set(bucket, (known ?? 0) + 1);
    } catch (error) {
      // Anything else that is wrong with a call is reported when its turn comes.
      if (error instanceof UnknownHostError && unknown.size < MOST_HOSTS && !unknown.has(error.host)) {
        unknown.set(error.host, call.line);
      }
    }
  }
  if (unknown.size > 0) throw new UsageError(noLimit(source.name, unknown));
  return { total, byBucket };
}

function noLimit(source: string, hosts: ReadonlyMap<string, number>): string {
  const lines = [...hosts].map(([host, line]) => `  ${host} (first in line ${line}): add --limit '${host}=RATE'`);
  return `${source} names hosts that have no limit, and nothing is sent unthrottled:\n${lines.join("\n")}\nor --rate RATE for every host`;
}
