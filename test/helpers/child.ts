import { fork } from "node:child_process";
import { join } from "node:path";
import { adopt, hasExited, terminate } from "./processes.js";
import { bounded, until } from "./wait.js";

/** Parent and child exchange plain objects told apart by `type`. */
export interface Message {
  readonly type: string;
}

export interface Child extends AsyncDisposable {
  readonly pid: number;
  /** Settles when the process has ended. */
  readonly exited: Promise<{ code: number | null; signal: NodeJS.Signals | null }>;
  send(message: Message): void;
  /** The oldest message of this type not yet taken; waits at most `timeout` ms (10 s) for one. */
  next<T extends object>(type: string, options?: { timeout?: number }): Promise<Message & T>;
  /** All messages so far, taken or not. */
  readonly messages: readonly Message[];
  /** What it printed so far, both streams. */
  output(): string;
  /** Sends a signal (SIGKILL); waits for the end unless the signal only stops or continues it. */
  kill(signal?: NodeJS.Signals): Promise<void>;
}

/** Runs test/children/<script> in a Node process of its own, which never outlives this one. */
export function startChild(
  script: string,
  options: { args?: readonly string[]; env?: NodeJS.ProcessEnv; execArgv?: string[] } = {},
): Child {
  const path = join(import.meta.dirname, "..", "children", script);
  const child = adopt(
    fork(path, options.args ?? [], {
      env: { ...process.env, ...options.env },
      // Not the test runner's own flags.
      execArgv: options.execArgv ?? [],
      silent: true,
    }),
  );
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream?.on("data", (chunk) => (output += chunk));
  const messages: Message[] = [];
  const untaken: Message[] = [];
  child.on("message", (message) => {
    messages.push(message as Message);
    untaken.push(message as Message);
  });
  // "close", not "exit": by then all messages and output have arrived.
  let closed = false;
  const exited = new Promise<{ code: number | null; signal: NodeJS.Signals | null }>((resolve) => {
    child.once("close", (code, signal) => {
      closed = true;
      resolve({ code, signal });
    });
  });

  async function kill(signal: NodeJS.Signals = "SIGKILL"): Promise<void> {
    if (signal === "SIGSTOP" || signal === "SIGCONT") {
      child.kill(signal);
      return;
    }
    await terminate(child, signal, 10_000);
    await bounded(exited, 5_000, `the streams of ${script} to close`);
  }
  return {
    pid: child.pid as number,
    exited,
    messages,
    output: () => output,
    send(message) {
      if (hasExited(child)) throw new Error(`${script} has ended: ${output}`);
      child.send(message);
    },
    async next<T extends object>(type: string, { timeout = 10_000 } = {}) {
      const index = await until(
        () => {
          const found = untaken.findIndex((message) => message.type === type);
          if (found === -1 && closed) throw new Error(`${script} ended without a "${type}" message: ${output}`);
          return found + 1;
        },
        { timeout, interval: 5, what: `a "${type}" message of ${script}; it printed: ${output}` },
      );
      return untaken.splice(index - 1, 1)[0] as Message & T;
    },
    kill,
    [Symbol.asyncDispose]: () => kill(),
  };
}
