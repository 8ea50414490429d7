import { list, number } from "../redis/reply.js";

/** What happened to the calls of a bucket. */
export interface UsageCounts {
  /** Attempts that have started; retries count. */
  readonly sent: number;
  /** Calls that were refused here: no room, blocked, over a quota; those dropped as the oldest, too. */
  readonly refused: number;
  /** Attempts that the server refused because there were too many. */
  readonly throttled: number;
  /** Durable calls that failed for good. */
  readonly failed: number;
}

/** {@link UsageCounts} of some time, and of each second of it. */
export interface BucketUsage extends UsageCounts {
  /** The seconds in which something happened, the oldest first. */
  readonly seconds: readonly ({ readonly at: Date } & UsageCounts)[];
}

export function readUsage(reply: readonly unknown[]): BucketUsage {
  const seconds = list(reply[2]).map((entry) => {
    const [at = 0, sent = 0, refused = 0, throttled = 0, failed = 0] = list(entry).map(number);
    return { at: new Date(at * 1000), sent, refused, throttled, failed };
  });
  const sum = (name: keyof UsageCounts): number => seconds.reduce((total, second) => total + second[name], 0);
  return { sent: sum("sent"), refused: sum("refused"), throttled: sum("throttled"), failed: sum("failed"), seconds };
}
