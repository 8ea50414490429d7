import { createHash } from "node:crypto";
import bullmq from "bullmq/dist/cjs/scripts/index.js";
import type { Cluster, Redis } from "ioredis";
import { lua } from "./lua.generated.js";

export type ScriptName = keyof typeof lua;

/**
 * Our scripts call BullMQ's own as functions, inside one atomic step: `--- @bullmq "moveToActive"` becomes that
 * script's text, as BullMQ ships it, wrapped in a function of its KEYS and ARGV, with a `redis` that writes no events
 * (see quiet.lua). BullMQ stays the owner of its data format; bullmq is pinned exactly, and a script that it no longer
 * ships is an error when this module loads.
 */
function compose(source: string): string {
  return source.replaceAll(/^--- @bullmq "(\w+)"$/gm, (_line, name: string) => {
    const script = bullmq[name];
    if (script === undefined) {
      throw new Error(
        `bullmq ships no script "${name}": spillway needs bullmq 6.7.0, exactly as its package.json says`,
      );
    }
    return `local function ${name}(KEYS, ARGV)\nlocal redis = quiet\n${script.content}\nend`;
  });
}

class Script {
  readonly source: string;
  readonly sha: string;
  constructor(source: string) {
    this.source = compose(source);
    this.sha = createHash("sha1").update(this.source).digest("hex");
  }
}

function composeAll(): Record<ScriptName, Script> {
  const entries = Object.entries(lua).map(([name, source]) => [name, new Script(source)] as const);
  return Object.fromEntries(entries) as Record<ScriptName, Script>;
}

const scripts = composeAll();

const isUnknownScript = (error: unknown): boolean => error instanceof Error && error.message.startsWith("NOSCRIPT");

/** Texts on their way to a server that did not know them. */
const teaching = new WeakMap<Redis | Cluster, Map<ScriptName, Promise<unknown>>>();

/**
 * A text has tens of kilobytes: of many calls that find it missing, one brings it and the others wait for that one. In a
 * cluster it may have gone to another node than theirs; then one of them is next.
 */
async function withText(
  redis: Redis | Cluster,
  name: ScriptName,
  run: () => Promise<unknown>,
  teach: () => Promise<unknown>,
): Promise<unknown> {
  for (;;) {
    try {
      return await run();
    } catch (error) {
      if (!isUnknownScript(error)) throw error;
    }
    const underWay = teaching.get(redis)?.get(name);
    if (underWay === undefined) break;
    await underWay.catch(() => {});
  }
  const texts = teaching.get(redis) ?? new Map<ScriptName, Promise<unknown>>();
  teaching.set(redis, texts);
  const taught = teach();
  texts.set(name, taught);
  try {
    return await taught;
  } finally {
    texts.delete(name);
  }
}

/** Simulations, which are not made on the servers of every day, bring them when they are first needed. */
const RARE: readonly string[] = ["replay", "erase"] satisfies ScriptName[];

/** Brings a server the scripts that it does not know yet. */
export async function loadScripts(redis: Redis | Cluster): Promise<void> {
  const all = Object.entries(scripts).flatMap(([name, script]) => (RARE.includes(name) ? [] : script));
  const known = await redis.script("EXISTS", ...all.map(({ sha }) => sha));
  const missing = all.filter((_script, i) => Array.isArray(known) && known[i] !== 1);
  await Promise.all(missing.map(({ source }) => redis.script("LOAD", source)));
}

/** Runs a script by its hash; a server that does not know it yet gets its text. */
export async function runScript(
  redis: Redis | Cluster,
  name: ScriptName,
  key: string,
  args: readonly (string | number | Buffer)[],
): Promise<unknown> {
  const script = scripts[name];
  const run = (): Promise<unknown> => redis.evalsha(script.sha, 1, key, ...args);
  return withText(redis, name, run, () => redis.eval(script.source, 1, key, ...args));
}

/** As {@link runScript}, for replies that hold bytes. */
export async function runScriptBuffer(
  redis: Redis | Cluster,
  name: ScriptName,
  key: string,
  args: readonly (string | number | Buffer)[],
): Promise<unknown> {
  const script = scripts[name];
  const run = (): Promise<unknown> => redis.callBuffer("EVALSHA", script.sha, 1, key, ...args);
  return withText(redis, name, run, () => redis.callBuffer("EVAL", script.source, 1, key, ...args));
}
