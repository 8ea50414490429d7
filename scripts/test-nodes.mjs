// What depends on the undici inside Node: the tests of fetch, of `spillway/undici` and of the SDKs, on other versions of
// Node. npx brings them; one that it cannot get is skipped, by name. Needs a build.
import { spawnSync } from "node:child_process";
import { join } from "node:path";

const VERSIONS = [22, 24];
const TESTS = ["fetch", "interceptor", "as-without", "stream", "abort"].map((name) => `test/intake/${name}.test.ts`);
const VITEST = join("node_modules", "vitest", "vitest.mjs");

process.chdir(join(import.meta.dirname, ".."));
for (const version of VERSIONS) {
  const node = ["--yes", `--package=node@${version}`, "node"];
  const { status, stdout } = spawnSync("npx", [...node, "--version"], { encoding: "utf8", timeout: 120_000 });
  if (status !== 0) {
    console.log(`skipped: Node ${version}, which npx could not get`);
    continue;
  }
  console.log(`Node ${stdout.trim()}`);
  const run = [...node, VITEST, "run", ...TESTS, "test/sdk"];
  const tests = spawnSync("npx", run, { stdio: "inherit", timeout: 600_000 });
  if (tests.status !== 0) process.exit(1);
}
