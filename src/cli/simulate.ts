import { createWriteStream, type WriteStream } from "node:fs";
import { writeFile } from "node:fs/promises";
import { finished } from "node:stream/promises";
import { drawSimulations, InvalidCallError, simulate, type SimulatedCall, type Simulation } from "../index.js";
import { startEmbeddedRedis } from "../redis/embedded.js";
import { UsageError } from "./arguments.js";
import { type Arrivals, openArrivals } from "./arrivals.js";
import { type NamedPolicy, readPolicies } from "./policies.js";
import { report } from "./report.js";
import type { SimulateArguments } from "./simulate-arguments.js";

/** `spillway simulate`. Returns the exit status. @throws {UsageError} */
export async function simulateCommand(given: SimulateArguments): Promise<number> {
  const policies = await readPolicies(given);
  const arrivals = await openArrivals(given, policies.length);
  const url = given.redis ?? (process.env["REDIS_URL"] || undefined);
  const embedded = url === undefined ? await startEmbeddedRedis() : undefined;
  const interrupted = new AbortController();
  for (const [signal, code] of [["SIGINT", 130] as const, ["SIGTERM", 143] as const]) {
    process.once(signal, () => interrupted.abort(code));
  }
  const lines = given.output === undefined ? undefined : new CallLines(given.output);
  try {
    const redis = url ?? embedded?.url;
    const simulations: Record<string, Simulation> = {};
    for (const policy of policies) {
      const onCall = (call: SimulatedCall): void => lines?.write(policy.name, call);
      const options = { redis, prefix: given.prefix, onCall, signal: interrupted.signal };
      simulations[policy.name] = await play(policy, arrivals, given, options);
    }
    await lines?.close();
    if (given.svg !== undefined) await writeFile(given.svg, drawSimulations(simulations));
    process.stdout.write(given.json ? json(simulations) : report(simulations));
    return 0;
  } catch (error) {
    if (interrupted.signal.aborted) return Number(interrupted.signal.reason);
    throw error;
  } finally {
    await embedded?.close();
  }
}

async function play(
  { limits }: NamedPolicy,
  arrivals: Arrivals,
  { file }: SimulateArguments,
  options: Parameters<typeof simulate>[2],
): Promise<Simulation> {
  try {
    return await simulate(limits, arrivals(), options);
  } catch (error) {
    if (!(error instanceof InvalidCallError)) throw error;
    const hint = error.message.includes("in the order of their times") ? " (--sort puts them in order)" : "";
    throw new UsageError(`${file ?? "stdin"}: ${error.message}${hint}`);
  }
}

/** Without the calls, which are none, and the timeline, which is for pictures. */
function json(simulations: Readonly<Record<string, Simulation>>): string {
  const policies = Object.entries(simulations).map(([policy, { total, limits, span }]) => ({
    policy,
    total,
    limits,
    span,
  }));
  return `${JSON.stringify({ policies }, undefined, 2)}\n`;
}

/** Writes a line of JSON for each call, in the order of time within each bucket. */
class CallLines {
  readonly #stream: WriteStream;
  readonly #ended: Promise<void>;

  constructor(file: string) {
    this.#stream = createWriteStream(file);
    this.#ended = finished(this.#stream);
    // Whoever closes it gets the error.
    this.#ended.catch(() => {});
  }

  write(policy: string, call: SimulatedCall): void {
    this.#stream.write(`${JSON.stringify({ policy, ...call })}\n`);
  }

  async close(): Promise<void> {
    this.#stream.end();
    await this.#ended;
  }
}
