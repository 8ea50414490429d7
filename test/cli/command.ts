import { type ChildProcess, spawn } from "node:child_process";
import { join } from "node:path";
import { adopt, terminate } from "../helpers/processes.js";
import { bounded } from "../helpers/wait.js";

const MAIN = join(import.meta.dirname, "..", "..", "dist", "cli", "main.js");

export interface Ended {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface Command extends AsyncDisposable {
  readonly pid: number;
  readonly ended: Promise<Ended>;
  readonly child: ChildProcess;
  stderr(): string;
  kill(signal: NodeJS.Signals): void;
}

interface CommandOptions {
  /** What stdin holds; without it stdin is empty. */
  readonly input?: string;
  /** Leaves stdin open for more. */
  readonly open?: boolean;
  readonly env?: NodeJS.ProcessEnv;
  readonly execArgv?: readonly string[];
  readonly cwd?: string;
}

/** Starts the command as a person would, without the REDIS_URL of the tests. */
export function start(args: readonly string[], options: CommandOptions = {}): Command {
  const { REDIS_URL: _redis, NODE_ENV: _env, ...env } = process.env;
  const child = adopt(
    spawn(process.execPath, [...(options.execArgv ?? []), MAIN, ...args], {
      env: { ...env, ...options.env },
      cwd: options.cwd,
    }),
  );
  let stdout = "";
  let stderr = "";
  child.stdout.setEncoding("utf8").on("data", (chunk: string) => (stdout += chunk));
  child.stderr.setEncoding("utf8").on("data", (chunk: string) => (stderr += chunk));
  child.stdin.on("error", () => {});
  if (options.open === true) child.stdin.write(options.input ?? "");
  else if (options.input === undefined) child.stdin.end();
  else child.stdin.end(options.input);
  const ended = new Promise<Ended>((resolve) => {
    child.once("close", (code, signal) => resolve({ code, signal, stdout, stderr }));
  });
  return {
    pid: child.pid ?? 0,
    ended,
    child,
    stderr: () => stderr,
    kill: (signal) => child.kill(signal),
    [Symbol.asyncDispose]: () => terminate(child, "SIGKILL"),
  };
}

/** Runs the command to its end. */
export async function spillway(
  args: readonly string[],
  options: CommandOptions & { timeout?: number } = {},
): Promise<Ended> {
  await using command = start(args, options);
  return await bounded(
    command.ended,
    options.timeout ?? 15_000,
    `the end of spillway ${args.join(" ")}: ${command.stderr()}`,
  );
}

export interface ResultLine {
  readonly id: string | number;
  readonly line: number;
  readonly url?: string;
  readonly status?: number;
  readonly headers?: Record<string, string | string[]>;
  readonly body?: string;
  readonly bodyBase64?: string;
  readonly path?: string;
  readonly attempts?: number;
  readonly waited?: number;
  readonly error?: { readonly code: string; readonly message: string };
}

/** Results in the order of their lines. Every line must be JSON, the last one included. */
export function parseResults(text: string): ResultLine[] {
  const lines = text.split("\n");
  if (lines.pop() !== "") throw new Error("Expected a newline at the end");
  return lines.map((line) => JSON.parse(line) as ResultLine).sort((a, b) => a.line - b.line);
}
