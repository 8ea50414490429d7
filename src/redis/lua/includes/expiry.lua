-- Buckets come by the thousand and must go by themselves: their keys expire, together, when nothing is left to do.

-- A key that comes anew in a bucket whose keys go by themselves goes with them.
local function age(g, name)
  if g.goes > g.now then call('PEXPIRE', base .. name, math.ceil((g.goes - g.now) / 1000)) end
end

-- Calls `see` with the name of each of its keys; job keys, states of rules and results go by themselves.
local function eachKey(see)
  for _, name in ipairs({
    'gate', 'meta', 'id', 'log', 'slots', 'later', 'recalled', 'inflight', 'idle', 'leases', 'marker', 'events', 'stalled',
    'usage', 'costs', 'deadlines', 'dedupe', 'pc',
  }) do see(base .. name) end
end

-- A bucket with work stays. `goes` is when its keys go by themselves, 0 for never.
local function persist(g)
  if g.goes == 0 then return end
  eachKey(function(key) call('PERSIST', key) end)
  g.goes, g.dirty = 0, true
end

-- Buckets come by the thousand (one per host or tenant) and must go by themselves, but not before their rules, pauses
-- and changed policies have run out. Put off only when it has come half as near as it may: a bucket may be used often.
local function expireWhenIdle(g, now)
  local IDLE_MICROS, FOREVER_MICROS = 3600000000, 3155760000000000
  if g.overrideUntil == 0 and call('HEXISTS', KEYS[1], 'override') == 1 then return persist(g) end
  local last = math.max(g.tat, g.pausedUntil, g.blockedUntil, g.overrideUntil, now + g.reach)
  local goes = math.min(last + IDLE_MICROS, now + FOREVER_MICROS)
  if g.goes > 0 and g.goes >= goes - IDLE_MICROS / 2 then return end
  -- What is to be redelivered later is work, too.
  if g.again > 0 then return persist(g) end
  eachKey(function(key) call('PEXPIRE', key, math.ceil((goes - now) / 1000)) end)
  g.goes, g.dirty = goes, true
end
