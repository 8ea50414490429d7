import { ClosedError, RedisUnavailableError } from "../errors.js";

/** A reply did not come. Whether the server has done what was asked is not known. */
export class UnansweredError extends RedisUnavailableError {
  /** Whoever gets it knows the class that is exported. */
  override get name(): string {
    return "RedisUnavailableError";
  }
}

/** How long a caller waits for Redis before it is told that there is none. */
export const PATIENCE_MS = 1000;
/** Scripts of a worker may wait longer: nobody has been told anything yet. Bounds a connection that died silently. */
export const LONG_PATIENCE_MS = 30_000;

/** Replies by which a server says that it cannot work now; the script has not run. */
const UNABLE = /^(LOADING|READONLY|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|OOM|MISCONF|NOREPLICAS|BUSY|NOAUTH|WRONGPASS)\b/;

/** Bounds the wait for a reply, and tells a server that cannot from one that did not answer. */
export async function answered<T>(reply: Promise<T>, patience: number): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<never>((_resolve, reject) => {
    const giveUp = (): void => reject(new UnansweredError(`Redis did not answer within ${Math.round(patience)} ms`));
    // Where this process itself was busy for so long, the answer may be there: sockets are read between the two.
    timer = setTimeout(() => setImmediate(giveUp), patience);
  });
  try {
    return await Promise.race([reply, timeout]);
  } catch (error) {
    throw translate(error);
  } finally {
    clearTimeout(timer);
  }
}

function translate(error: unknown): unknown {
  if (!(error instanceof Error) || error instanceof RedisUnavailableError || error instanceof ClosedError) return error;
  if (error.name === "ReplyError") {
    if (!UNABLE.test(error.message)) return error;
    return new RedisUnavailableError(`Redis cannot take calls now: ${error.message}`, { cause: error });
  }
  if (error.message.includes("enableOfflineQueue")) {
    return new RedisUnavailableError("Redis is not reachable", { cause: error });
  }
  if (error instanceof TypeError) return error;
  const plain = plainly(error);
  return plain === error
    ? new UnansweredError(`The connection to Redis was lost: ${error.message}`, { cause: error })
    : plain;
}

/** Ioredis tells of a command that was under way when its connection broke by the option that says not to repeat it. */
export function plainly(error: unknown): unknown {
  if (!(error instanceof Error) || error.name !== "MaxRetriesPerRequestError") return error;
  return new UnansweredError("The connection to Redis was lost", { cause: error });
}
