// What tsc leaves to do: make the command executable, and remove what a deleted source left behind. The latter is
// done after the build, not by emptying dist/ before it, so that a process running from dist/ is not cut off.
import { chmodSync, existsSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";

process.chdir(join(import.meta.dirname, ".."));
for (const file of readdirSync("dist", { recursive: true, encoding: "utf8" })) {
  const source = join("src", file.replace(/(\.d\.ts|\.js)$/, ".ts"));
  if (!existsSync(source)) rmSync(join("dist", file), { recursive: true, force: true });
}
const command = join("dist", "cli", "main.js");
if (existsSync(command)) chmodSync(command, 0o755);
