import { once } from "node:events";
import { Worker } from "node:worker_threads";
import { type Arrival, type Handler, listen, type UpstreamOptions } from "./upstream-server.mjs";
import { bounded } from "./wait.js";

export type { Arrival, Handler, UpstreamOptions };

/** What a server saw, in order of arrival. */
export class Recording {
  readonly arrivals: Arrival[];
  constructor(arrivals: Arrival[]) {
    this.arrivals = arrivals;
  }

  /** How many got 429 from the server's own limit. */
  get refused(): number {
    return this.arrivals.filter((arrival) => arrival.refused).length;
  }

  /** The most arrivals, refused ones included, in any window [t, t + ms). */
  maxInWindow(ms: number): number {
    let most = 0;
    let first = 0;
    for (const [last, { at }] of this.arrivals.entries()) {
      while ((this.arrivals[first] as Arrival).at + ms <= at) first++;
      most = Math.max(most, last - first + 1);
    }
    return most;
  }

  /** Milliseconds between one arrival and the next. */
  gaps(): number[] {
    return this.arrivals.slice(1).map(({ at }, index) => at - (this.arrivals[index] as Arrival).at);
  }
}

/** A server in this process. Recordings are live; a busy event loop delays them. */
export interface Upstream extends Recording, AsyncDisposable {
  readonly url: string;
  /** Host and port. */
  readonly host: string;
  /** Ends it at once, open connections included. */
  close(): Promise<void>;
}

export async function startUpstream(options: UpstreamOptions & { handler?: Handler } = {}): Promise<Upstream> {
  const { port, arrivals, close } = await listen(options, () => performance.now(), options.handler);
  const end = async () => {
    await close();
  };
  return Object.assign(new Recording(arrivals), { ...addresses(port), close: end, [Symbol.asyncDispose]: end });
}

/** A server in a thread of its own: its times hold while the test is busy. It takes no handler. */
export interface UpstreamThread extends AsyncDisposable {
  readonly url: string;
  /** Host and port. */
  readonly host: string;
  /** Everything seen so far. */
  read(): Promise<Recording>;
  close(): Promise<void>;
}

export async function startUpstreamThread(options: UpstreamOptions = {}): Promise<UpstreamThread> {
  const clockOffset = performance.now() - Number(process.hrtime.bigint()) / 1e6;
  const thread = new Worker(new URL("upstream-thread.mjs", import.meta.url), {
    workerData: { options, clockOffset },
    execArgv: [],
  });
  const answer = async <T>(): Promise<T> => {
    const [message] = (await bounded(once(thread, "message"), 10_000, "the upstream thread")) as [T];
    return message;
  };
  const { port } = await answer<{ port: number }>();
  const all: Arrival[] = [];
  const close = async () => {
    await thread.terminate();
  };
  return {
    ...addresses(port),
    async read() {
      thread.postMessage("read");
      all.push(...(await answer<{ arrivals: Arrival[] }>()).arrivals);
      return new Recording([...all]);
    },
    close,
    [Symbol.asyncDispose]: close,
  };
}

function addresses(port: number): { url: string; host: string } {
  return { url: `http://127.0.0.1:${port}`, host: `127.0.0.1:${port}` };
}
