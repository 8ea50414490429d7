import { InvalidLimitError } from "../errors.js";
import { Reporter } from "../observe/events.js";
import { checkRedis } from "./connect.js";
import { Keeper } from "./keeper.js";
import { Mailbox } from "./mailbox.js";
import { Session, type SessionOptions } from "./session.js";

/** What a client, a worker, or both in one process, share. */
export interface Context {
  readonly session: Session;
  readonly keeper: Keeper;
  readonly mailbox: Mailbox;
  readonly report: Reporter;
  close(): Promise<void>;
}

export function openContext(options: SessionOptions, leaseMs?: number): Context {
  const report = new Reporter();
  const session = new Session(options, report);
  const keeper = new Keeper(session, leaseMs);
  const mailbox = new Mailbox(session);
  session.notices.onReconnect.push(() => keeper.renewAll());
  session.declareAll().catch((error: unknown) => report.connection(error));
  const close = async (): Promise<void> => {
    keeper.close();
    mailbox.close();
    await session.close();
  };
  return { session, keeper, mailbox, report, close };
}

/** @throws {InvalidLimitError} when an option that clients and workers share is wrong. */
export function checkConnection(options: { limits: unknown; prefix?: string | undefined; redis?: unknown }): void {
  const { limits, prefix, redis } = options;
  if (typeof limits !== "object" || limits === null || !("match" in limits)) {
    throw new InvalidLimitError("limits", "what defineLimits() returns", limits);
  }
  checkRedis(redis, prefix);
}
