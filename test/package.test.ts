import { execFile } from "node:child_process";
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { temporaryFolder } from "./helpers/processes.js";

const run = promisify(execFile);
const root = join(import.meta.dirname, "..");
const manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as {
  exports: Record<string, string | { types: string; default: string }>;
  bin: Record<string, string>;
  dependencies: Record<string, string>;
  peerDependencies: Record<string, string>;
};
const entries = Object.keys(manifest.exports)
  .filter((entry) => entry !== "./package.json")
  .map((entry) => entry.replace(/^\./, "spillway"));

const project = temporaryFolder();
const modules = join(project.path, "node_modules");
const installed = join(modules, "spillway");
let packed: string[];

// An installation without a network: the tarball itself, and this checkout's dependencies.
beforeAll(async () => {
  const pack = ["pack", "--ignore-scripts", "--json", "--pack-destination", project.path];
  const { stdout } = await run("npm", pack, { cwd: root, timeout: 30_000 });
  const [tarball] = JSON.parse(stdout) as [{ filename: string; files: { path: string }[] }];
  packed = tarball.files.map((file) => file.path);
  mkdirSync(installed, { recursive: true });
  const archive = join(project.path, tarball.filename);
  await run("tar", ["-xzf", archive, "-C", installed, "--strip-components=1"], { timeout: 10_000 });
  for (const name of [...Object.keys({ ...manifest.dependencies, ...manifest.peerDependencies }), "@types/node"]) {
    mkdirSync(dirname(join(modules, name)), { recursive: true });
    symlinkSync(join(root, "node_modules", name), join(modules, name));
  }
  writeFileSync(join(project.path, "package.json"), JSON.stringify({ type: "module" }));
}, 60_000);
afterAll(() => project.remove());

test("holds what is built and its documents, nothing else", () => {
  const documents = ["package.json", "LICENSE", "README.md", "CHANGELOG.md"];
  expect(packed.filter((path) => !path.startsWith("dist/")).filter((path) => !documents.includes(path))).toEqual([]);
  const targets = Object.values(manifest.exports).flatMap((target) => Object.values(target as object) as string[]);
  const promised = [...targets.filter((path) => path.startsWith("./")), ...Object.values(manifest.bin)];
  expect(packed).toEqual(expect.arrayContaining(promised.map((path) => path.replace("./", ""))));
});

test("every entry loads in Node", async () => {
  const script = entries.map((entry) => `await import(${JSON.stringify(entry)});`).join("\n");
  writeFileSync(join(project.path, "load.mjs"), `${script}\nconsole.log("loaded");\n`);
  const { stdout } = await run(process.execPath, ["load.mjs"], { cwd: project.path, timeout: 15_000 });
  expect(stdout).toBe("loaded\n");
});

test("every entry type-checks in a strict project with moduleResolution nodenext", async () => {
  const lines = entries.map((entry, index) => `export * as entry${index} from ${JSON.stringify(entry)};`);
  writeFileSync(join(project.path, "consumer.ts"), lines.join("\n"));
  const compilerOptions = {
    module: "nodenext",
    moduleResolution: "nodenext",
    target: "es2022",
    lib: ["es2023", "esnext.disposable"],
    types: ["node"],
    strict: true,
    skipLibCheck: false,
    noEmit: true,
  };
  writeFileSync(join(project.path, "tsconfig.json"), JSON.stringify({ compilerOptions, files: ["consumer.ts"] }));
  const compiler = join(root, "node_modules", "typescript", "bin", "tsc");
  const { stdout } = await run(process.execPath, [compiler], { cwd: project.path, timeout: 60_000 }).catch(
    (error: { stdout: string }) => error,
  );
  expect(stdout).toBe("");
}, 70_000);
