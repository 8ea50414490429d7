#!/usr/bin/env node
import { readFileSync } from "node:fs";
import { parseRunArguments, UsageError } from "./arguments.js";
import { HELP, RUN_HELP, SIMULATE_HELP } from "./help.js";
import { runCommand } from "./command.js";
import { simulateCommand } from "./simulate.js";
import { parseSimulateArguments } from "./simulate-arguments.js";

const USAGE = 2;

async function main([command, ...argv]: readonly string[]): Promise<number> {
  switch (command) {
    case "--help":
    case "-h":
    case "help":
      process.stdout.write(HELP);
      return 0;
    case "--version":
    case "-v":
      process.stdout.write(`${version()}\n`);
      return 0;
    case "run": {
      const given = parseRunArguments(argv);
      if (given !== undefined) return runCommand(given);
      process.stdout.write(RUN_HELP);
      return 0;
    }
    case "simulate": {
      const given = parseSimulateArguments(argv);
      if (given !== undefined) return simulateCommand(given);
      process.stdout.write(SIMULATE_HELP);
      return 0;
    }
    case undefined:
      process.stderr.write(HELP);
      return USAGE;
    default:
      throw new UsageError(`Unknown command ${command}: see spillway --help`);
  }
}

function version(): string {
  const manifest: unknown = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8"));
  return typeof manifest === "object" && manifest !== null && "version" in manifest ? String(manifest.version) : "";
}

try {
  // Not left to end by itself: a config may have opened connections of its own.
  process.exit(await main(process.argv.slice(2)));
} catch (error) {
  const known = error instanceof UsageError;
  const message = error instanceof Error ? error.message : String(error);
  process.stderr.write(`spillway: ${message}\n`);
  if (!known && error instanceof Error && process.env["DEBUG"] !== undefined) process.stderr.write(`${error.stack}\n`);
  process.exit(known ? USAGE : 1);
}
