import { type ChildProcess, spawn } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";
import { adopt, freePort, hasExited, temporaryFolder, terminate } from "./processes.js";
import { until } from "./wait.js";

/** A real redis-server of this test's own, on loopback. */
export interface NativeRedis extends AsyncDisposable {
  readonly url: string;
  readonly port: number;
  /** Of the current process: `restart()` changes it. */
  readonly pid: number;
  /** Ends it for good and removes its folder. */
  stop(): Promise<void>;
  /** Sends a signal (SIGKILL); waits for the end unless the signal only stops or continues it. */
  kill(signal?: NodeJS.Signals): Promise<void>;
  /** Ends it if it runs and starts it anew on the same port, empty unless `args` ask for persistence. */
  restart(): Promise<void>;
}

/** Is there a redis-server on the PATH? */
export const hasNativeRedis: boolean = (process.env.PATH ?? "").split(delimiter).some((folder) => {
  try {
    accessSync(join(folder, "redis-server"), constants.X_OK);
    return true;
  } catch {
    return false;
  }
});

/** Starts a redis-server without persistence on a free port; `args` are added to its command line. */
export async function nativeRedis(args: readonly string[] = []): Promise<NativeRedis> {
  const folder = temporaryFolder();
  let port = await freePort();
  let server = await launch(port, folder.path, args).catch(async () => {
    // Another process may have taken the port since it was looked at.
    port = await freePort();
    return launch(port, folder.path, args);
  });

  async function stop(): Promise<void> {
    server.kill("SIGCONT");
    await terminate(server, "SIGTERM");
    folder.remove();
  }
  return {
    url: `redis://127.0.0.1:${port}`,
    port,
    get pid() {
      return server.pid as number;
    },
    async kill(signal = "SIGKILL") {
      if (signal === "SIGSTOP" || signal === "SIGCONT") server.kill(signal);
      else await terminate(server, signal);
    },
    async restart() {
      server.kill("SIGCONT");
      await terminate(server, "SIGTERM");
      server = await launch(port, folder.path, args);
    },
    stop,
    [Symbol.asyncDispose]: stop,
  };
}

async function launch(port: number, folder: string, args: readonly string[]): Promise<ChildProcess> {
  const basics = ["--port", `${port}`, "--bind", "127.0.0.1", "--dir", folder, "--save", "", "--appendonly", "no"];
  const child = adopt(spawn("redis-server", [...basics, ...args], { stdio: ["ignore", "pipe", "pipe"] }));
  let output = "";
  child.on("error", (error) => (output += error.message));
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk) => (output += chunk));
  // Its own word, not a PING: on a port somebody else took, that one would answer.
  await until(() => hasExited(child) || output.includes("Ready to accept connections"), {
    timeout: 10_000,
    what: "redis-server accepting connections",
  });
  if (hasExited(child)) throw new Error(`redis-server did not start: ${output}`);
  return child;
}
