// One small process per test process that outlives it, however it ends (SIGKILL included), and then kills every
// child and removes every temporary folder that was left. It knows the end by the end of its input.
import { rmSync } from "node:fs";
import { createInterface } from "node:readline";

/** @type {Set<number>} */
const pids = new Set();
/** @type {Set<string>} */
const folders = new Set();
// Input ends with the parent, not with the terminal's Ctrl-C.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => {});

createInterface({ input: process.stdin })
  .on("line", (line) => {
    const { pid, folder, gone } = JSON.parse(line);
    const change = gone ? "delete" : "add";
    if (pid !== undefined) pids[change](pid);
    if (folder !== undefined) folders[change](folder);
  })
  .on("close", () => {
    for (const pid of pids) {
      try {
        process.kill(pid, "SIGKILL");
      } catch {
        // It ended by itself.
      }
    }
    for (const folder of folders) rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  });
