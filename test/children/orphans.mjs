// Starts a process that would run for a minute, hands it to the reaper, and leaves the rest to whoever kills it.
import { spawn } from "node:child_process";
import { join } from "node:path";

const program = `require("node:net").connect(${process.argv[2]}, "127.0.0.1"); setTimeout(() => {}, 60_000)`;
const orphan = spawn(process.execPath, ["--eval", program], { stdio: "ignore" });
const reaper = spawn(process.execPath, [join(import.meta.dirname, "..", "helpers", "reaper.mjs")], {
  detached: true,
  stdio: ["pipe", "ignore", "inherit"],
});
reaper.stdin.write(`${JSON.stringify({ pid: orphan.pid })}\n`);
