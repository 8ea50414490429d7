import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { bounded } from "./wait.js";

let reaper: Socket | undefined;

function tellReaper(message: { pid?: number | undefined; folder?: string; gone?: true }): void {
  if (reaper === undefined) {
    const script = join(import.meta.dirname, "reaper.mjs");
    const child = spawn(process.execPath, [script], { detached: true, stdio: ["pipe", "ignore", "inherit"] });
    child.unref();
    reaper = child.stdin as Socket;
    reaper.unref();
    // A test whose runner is gone would otherwise run on, and its children with it.
    process.once("disconnect", () => process.exit(1));
  }
  reaper.write(`${JSON.stringify(message)}\n`);
}

/** Makes sure that the child does not outlive this process, whatever happens. */
export function adopt<T extends ChildProcess>(child: T): T {
  if (child.pid === undefined) return child;
  tellReaper({ pid: child.pid });
  child.once("exit", () => tellReaper({ pid: child.pid, gone: true }));
  return child;
}

export function hasExited(child: ChildProcess): boolean {
  return child.pid === undefined || child.exitCode !== null || child.signalCode !== null;
}

/** Sends the signal and waits for the end; what does not end within `timeout` ms is killed. */
export async function terminate(child: ChildProcess, signal: NodeJS.Signals, timeout = 3_000): Promise<void> {
  if (hasExited(child)) return;
  const exited = once(child, "exit");
  child.kill(signal);
  const killer = setTimeout(() => child.kill("SIGKILL"), timeout);
  await bounded(exited, timeout + 5_000, `the end of process ${child.pid}`);
  clearTimeout(killer);
}

/** A temporary folder, removed by `remove()` or with this process. */
export function temporaryFolder(): { path: string; remove(): void } {
  const path = mkdtempSync(join(tmpdir(), "spillway-test-"));
  tellReaper({ folder: path });
  return {
    path,
    remove() {
      rmSync(path, { recursive: true, force: true, maxRetries: 5 });
      tellReaper({ folder: path, gone: true });
    },
  };
}

/**
 * A loopback port that is free, and so is port + 10000 (a cluster's bus). Taken from below the range of outgoing
 * connections: there, a client that reconnects to a stopped server can end up connected to itself.
 */
export async function freePort(): Promise<number> {
  for (let attempt = 0; attempt < 50; attempt++) {
    const port = 10_240 + Math.floor(Math.random() * 12_000);
    if ((await canListen(port)) && (await canListen(port + 10_000))) return port;
  }
  throw new Error("No free port found in 50 attempts");
}

function canListen(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer()
      .once("error", () => resolve(false))
      .listen(port, "127.0.0.1", () => server.close(() => resolve(true)));
  });
}
