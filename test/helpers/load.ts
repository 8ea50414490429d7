import { spawn } from "node:child_process";
import { adopt, terminate } from "./processes.js";

export interface Load extends AsyncDisposable {
  readonly pids: readonly number[];
  stop(): Promise<void>;
}

/** Keeps `cores` cores busy from other processes until `stop()`, at most `maxMs`. */
export function burn(cores = 1, maxMs = 60_000): Load {
  const program = `const end = Date.now() + ${maxMs}; while (Date.now() < end);`;
  const children = Array.from({ length: cores }, () =>
    adopt(spawn(process.execPath, ["--eval", program], { stdio: "ignore" })),
  );
  const stop = async () => {
    await Promise.all(children.map((child) => terminate(child, "SIGKILL")));
  };
  return { pids: children.map((child) => child.pid as number), stop, [Symbol.asyncDispose]: stop };
}

/** Blocks this process's event loop. */
export function blockEventLoop(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}
