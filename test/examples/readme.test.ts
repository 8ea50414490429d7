import { execFile } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, describe, expect, test } from "vitest";
import * as spillway from "spillway";
import { startUpstream } from "../helpers/upstream.js";

const root = join(import.meta.dirname, "../..");
const readme = readFileSync(join(root, "README.md"), "utf8");
const folder = mkdtempSync(join(tmpdir(), "spillway-readme-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Blocks of one language, in the order of the page. */
function blocks(language: string): string[] {
  return [...readme.matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\`$`, "gms"))].map(([, code = ""]) => code);
}

/** What a block may use without having declared it; one that imports anything stands on its own. */
const PRELUDE = `
import { Octokit } from "@octokit/core";
import { WebClient } from "@slack/web-api";
import OpenAI from "openai";
import Stripe from "stripe";
import { type Client, createClient, createWorker, defineLimits } from "spillway";
declare const client: Client;
declare const id: string;
declare const key: string;
declare const token: string;
declare const sdk: {
  charge(options: { amount: number; signal: AbortSignal | undefined }): Promise<string>;
  ask(question: string): Promise<{ usage: { total_tokens: number } }>;
};
`;

describe("the README", () => {
  test("every TypeScript block compiles", async () => {
    const code = blocks("ts");
    expect(code.length).toBeGreaterThan(5);
    for (const [i, block] of code.entries()) {
      const prelude = /^import /m.test(block) ? "" : PRELUDE;
      writeFileSync(join(folder, `block-${i}.ts`), `${prelude}\n${block}\nexport {};\n`);
    }
    const options = {
      extends: join(root, "tsconfig.json"),
      compilerOptions: {
        rootDir: "/",
        noEmit: true,
        declaration: false,
        isolatedDeclarations: false,
        noUnusedLocals: false,
        typeRoots: [join(root, "node_modules/@types")],
        paths: {
          spillway: [join(root, "dist/index.d.ts")],
          "spillway/limiters": [join(root, "dist/limiters/index.d.ts")],
        },
      },
      include: [folder],
    };
    writeFileSync(join(folder, "package.json"), '{ "type": "module" }');
    symlinkSync(join(root, "node_modules"), join(folder, "node_modules"));
    writeFileSync(join(folder, "tsconfig.json"), JSON.stringify(options));
    const compiler = join(root, "node_modules/typescript/bin/tsc");
    const outcome = await promisify(execFile)(process.execPath, [compiler, "-p", folder], { timeout: 60_000 }).then(
      () => "",
      (error: { stdout: string }) => error.stdout,
    );
    expect(outcome).toBe("");
  }, 70_000);

  test("the first example prints what stands below it", async () => {
    const [example = ""] = blocks("js");
    const [promised = ""] = blocks("text");
    await using upstream = await startUpstream();
    const script = join(folder, "example.mjs");
    const text = example
      .replaceAll("https://api.example.com", upstream.url)
      .replaceAll("api.example.com", upstream.host)
      .replace('"spillway"', JSON.stringify(import.meta.resolve("spillway")));
    writeFileSync(script, text);
    const { REDIS_URL: _url, NODE_ENV: _env, ...env } = process.env;
    const { stdout } = await promisify(execFile)(process.execPath, [script], { env, timeout: 15_000 });

    // Which call is late on a cold start, and is overtaken, is not promised.
    const outcomes = (output: string): string[] =>
      [...output.matchAll(/^call [1-6]: (\w+) after \d+\.\d s$/gm)].map(([, outcome = ""]) => outcome).sort();
    expect(outcomes(promised)).toHaveLength(6);
    expect(promised.trim().split("\n")).toHaveLength(6);
    expect(stdout.trim().split("\n")).toHaveLength(6);
    expect(outcomes(stdout)).toEqual(outcomes(promised));
    for (const output of [stdout, promised]) {
      const times = [...output.matchAll(/200 after ([\d.]+) s/g)].map(([, seconds]) => Number(seconds));
      expect(times).toEqual(times.toSorted((a, b) => a - b));
      expect(Number(times.at(-1)) - Number(times[0])).toBeGreaterThan(1);
    }
  }, 20_000);

  test("every error has its row, and no other", () => {
    const rows = [...readme.matchAll(/^\| `(ERR_\w+)` \| `(\w+)` \|/gm)].map(([, code, name]) => `${code} ${name}`);
    const classes = Object.entries(spillway).flatMap(([name, value]) =>
      typeof value === "function" && value.prototype instanceof spillway.SpillwayError ? [name] : [],
    );
    expect(rows.map((row) => row.split(" ")[1] ?? "").sort()).toEqual(classes.sort());
    const declared = readFileSync(join(root, "src/errors.ts"), "utf8");
    const codes = [...declared.matchAll(/class (\w+) extends SpillwayError \{\s+readonly code = "(\w+)"/g)];
    expect(codes.map(([, name, code]) => `${code} ${name}`).sort()).toEqual(rows.sort());
  });

  test("every option has its row, and no other", () => {
    const table = (heading: string): string[] => {
      const [, text = ""] = readme.split(`\n| ${heading} |`);
      return [...(text.split("\n\n")[0] ?? "").matchAll(/^\| `(\w+)`/gm)].map(([, name = ""]) => name).sort();
    };
    const optionsOf = (file: string, ...interfaces: string[]): string[] => {
      const source = readFileSync(join(root, "src", file), "utf8");
      const bodies = interfaces.map((name) => new RegExp(`interface ${name}\\b.*?^\\}`, "ms").exec(source)?.[0] ?? "");
      return bodies
        .flatMap((body) => [...body.matchAll(/^ {2}readonly (\w+)\??:/gm)].map(([, name = ""]) => name))
        .sort();
    };
    expect(table("option")).toEqual(optionsOf("limits/options.ts", "PolicyOptions", "LimitOptions"));
    expect(table("`createClient`")).toEqual(optionsOf("intake/client.ts", "ClientOptions"));
    const shared = ["limits", "prefix", "redis"];
    expect([...table("`createWorker`"), ...shared].sort()).toEqual(optionsOf("send/worker.ts", "WorkerOptions"));
    const events = readFileSync(join(root, "src/observe/events.ts"), "utf8");
    const names = /interface SpillwayEvents \{.*?^\}/ms.exec(events)?.[0] ?? "";
    expect(table("event")).toEqual([...names.matchAll(/^ {2}(\w+): \[/gm)].map(([, name = ""]) => name).sort());
  });

  test("what it links to is there", () => {
    const links = [...readme.matchAll(/\]\((?!https?:|#)([^)#]+)/g)].map(([, target = ""]) => target);
    expect(links.filter((target) => !existsSync(join(root, target)))).toEqual([]);
  });
});
