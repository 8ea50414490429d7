import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Redis } from "ioredis";
import { type ClassicRule, encodeRule, normalizeRule } from "../../dist/limiters/rule.js";
import { list, text } from "../../dist/redis/reply.js";
import { redisUrl, uniquePrefix } from "../helpers/redis.js";

const src = join(import.meta.dirname, "../../src");
const folders = ["limiters/lua/includes", "redis/lua/includes"].map((folder) => join(src, folder));

function include(name: string): string {
  const texts = folders.flatMap((folder) => {
    try {
      return [readFileSync(join(folder, `${name}.lua`), "utf8")];
    } catch {
      return [];
    }
  });
  return (texts[0] ?? "").replace(/^--- @include "([\w-]+)"$/gm, (_line, inner: string) => include(inner));
}

/** What is done to the state of one rule: [what, at, cost, now], times in µs. */
export type Op =
  | readonly ["earliest", number, number]
  | readonly ["take", number, number]
  | readonly ["count", number, number]
  | readonly ["reserve", number, number]
  | readonly ["undo", number]
  | readonly ["refuse", number, number]
  | readonly ["status", number]
  | readonly ["rewind", number]
  | readonly ["size"];

/**
 * All operations of a history in one script, so that a property costs one round trip.
 *
 * earliest: { time } · take: counts if it fits: { 1 or 0, earliest, until } · count: { until } ·
 * reserve: counts at the earliest time, as a gate does: { slot, until } · undo: takes back the nth newest reservation that stands: { slot, cost } ·
 * refuse: { until } · status: { remaining, reset } · rewind: as if the clock had been set back to a time, { newest } ·
 * size: { entries, bytes }
 */
const SOURCE = `${include("rules")}
local X, rule = readRule(ARGV[1])
local key = KEYS[1]
local function number(n) return n == math.huge and 'Infinity' or micros(n) end
local standing, replies = {}, {}
local run = {}
function run.earliest(at, cost) return { X.earliest(key, rule, at, cost) } end
function run.take(at, cost)
  local earliest = X.earliest(key, rule, at, cost)
  if earliest > at then return { 0, earliest, 0 } end
  return { 1, earliest, X.count(key, rule, at, cost, math.huge) }
end
function run.count(at, cost) return { X.count(key, rule, at, cost, 0) } end
function run.reserve(now, cost)
  local slot = X.earliest(key, rule, now, cost)
  if slot == math.huge then return { slot, 0 } end
  local goes = X.count(key, rule, slot, cost, now)
  standing[#standing + 1] = { slot, cost }
  return { slot, goes }
end
function run.undo(back)
  local place = #standing - back
  if place < 1 then return { -1, 0 } end
  local taken = table.remove(standing, place)
  X.uncount(key, rule, taken[1], taken[2])
  return taken
end
function run.refuse(at, cost) return { X.refuse(key, rule, at, cost) } end
function run.status(at) return { X.status(key, rule, at) } end
function run.rewind(now)
  local newest = X.newest(key, rule)
  if newest and newest > now then X.shift(key, rule, newest - now) end
  return { newest or 0 }
end
function run.size()
  local kind = call('TYPE', key).ok
  local entries = kind == 'list' and call('LLEN', key) or kind == 'hash' and call('HLEN', key) or 0
  return { entries, kind == 'string' and call('STRLEN', key) or 0 }
end
for i, op in ipairs(cjson.decode(ARGV[2])) do
  local reply = run[op[1]](op[2], op[3])
  for j, value in ipairs(reply) do reply[j] = number(value) end
  replies[i] = reply
end
call('DEL', key)
return replies`;

const redis = new Redis(redisUrl());
const key = `${uniquePrefix()}:rule`;
export const quit = (): void => redis.disconnect();

/** Runs the operations on a fresh key; each reply is a list of numbers. */
export async function runRule(options: ClassicRule, ops: readonly Op[]): Promise<number[][]> {
  const rule = encodeRule(normalizeRule(options, "rule"));
  const replies = await redis.eval(SOURCE, 1, key, rule, JSON.stringify(ops));
  return list(replies).map((reply) => list(reply).map((value) => Number(text(value))));
}
