-- The state of one bucket's gate, shared by every script that moves calls.
--
-- KEYS[1] is always the gate hash, `<prefix>:{<bucket>}:gate`. All other keys of the bucket share its hash tag and are
-- derived from it; BullMQ's own scripts derive job keys in the same way.
--
-- Times are Redis TIME in whole microseconds, which a double holds exactly.
local base = string.sub(KEYS[1], 1, -5)
local prefix, bucket = string.match(KEYS[1], '^(.*):{(.*)}:gate$')
local call = redis.call

-- BullMQ's scripts tell each step of each job to an event stream, up to five times a call. Nobody here reads it.
local quiet = {
  call = function(command, ...)
    if command ~= 'XADD' and command ~= 'XTRIM' then return call(command, ...) end
  end,
}

local function micros(t) return string.format('%.0f', t) end

-- Tests and simulations inject the time; everybody else gets the server's.
local function clock(injected)
  if injected and injected ~= '' then return tonumber(injected) end
  local t = call('TIME')
  return tonumber(t[1]) * 1000000 + tonumber(t[2])
end

local FIELDS = {
  'limit', 'per', 'burst', 'late', 'rules', 'capacity', 'overflow', 'concurrency', 'cluster',
  'tat', 'part', 'last', 'newest', 'undo', 'changed', 'shifted',
  'pausedUntil', 'pauseReason', 'blockedUntil', 'blockReason',
  'turn', 'turnUntil', 'turnSince', 'overrideUntil', 'again', 'goes',
  'slow', 'slowAt', 'learned', 'learnedUntil', 'second', 'starts', 'weighed', 'costSum', 'costOut', 'mean', 'firsts',
}
local NUMBERS = {
  'limit', 'per', 'burst', 'late', 'capacity', 'concurrency', 'tat', 'part', 'last', 'changed', 'shifted',
  'pausedUntil', 'blockedUntil', 'turnUntil', 'turnSince', 'overrideUntil', 'again', 'goes',
  'slow', 'slowAt', 'learnedUntil', 'second', 'starts', 'costSum', 'costOut', 'mean', 'firsts',
}
local FOREVER = 9007199254740991

local function writePolicy(policy)
  for name, value in pairs(policy) do call('HSET', KEYS[1], name, value) end
end

-- A policy set with an expiry gives way to the declared one.
local function endOverride()
  local declared = call('HGET', KEYS[1], 'declared')
  call('HDEL', KEYS[1], 'override', 'overrideUntil')
  writePolicy(cjson.decode(declared))
end

-- AIMD (Chiu & Jain 1989; RFC 5681, 3.1): a refusal halves the rate, and what was lost comes back by equal steps of
-- time, the whole rate within a minute or 20 calls. `slow` is the share of the rate at `slowAt`.
local RECOVERY_MICROS, RECOVERY_CALLS = 60000000, 20
local function shareOf(g, now)
  if g.slow == 0 then return 1 end
  local whole = math.max(RECOVERY_MICROS, RECOVERY_CALLS * g.cycle / g.limit)
  return math.min(1, g.slow + math.max(0, now - g.slowAt) / whole)
end

local function read(now)
  local values = call('HMGET', KEYS[1], unpack(FIELDS))
  if not values[1] then return nil end
  local g = { now = now }
  for i, name in ipairs(FIELDS) do g[name] = values[i] end
  for _, name in ipairs(NUMBERS) do g[name] = tonumber(g[name] or 0) end
  -- Starts may be `late` late, so slots lie that much further apart: then no window of the period holds more than N.
  g.cycle = g.per + g.late
  -- GCRA's tolerance (ITU-T I.371): how far ahead of the even schedule a burst may run. Slowing down does not widen it.
  g.tau = math.floor((g.burst - 1) * g.cycle / g.limit)
  g.share = shareOf(g, now)
  g.cycle = math.ceil(g.cycle / g.share)
  g.spacing = g.cycle / g.limit
  g.closedUntil = math.max(g.pausedUntil, g.blockedUntil)
  g.weighed = g.weighed == '1'
  g.windows, g.longest, g.reach, g.costReach = {}, 0, 0, 0
  -- What the server named last holds beside the rules.
  local learned = g.learnedUntil > now and g.learned or ''
  for n, per, cost in string.gmatch((g.rules or '') .. ',' .. learned, '(%d+)/(%d+)(c?)') do
    local window = { limit = tonumber(n), cycle = tonumber(per) + g.late, weighed = cost == 'c' }
    g.windows[#g.windows + 1] = window
    if window.weighed then
      g.costReach = math.max(g.costReach, window.cycle)
    else
      g.longest = math.max(g.longest, window.limit)
    end
    g.reach = math.max(g.reach, window.cycle)
  end
  return g
end

local function save(g)
  if not g.dirty then return end
  call('HSET', KEYS[1], 'tat', micros(g.tat), 'part', micros(g.part), 'last', micros(g.last),
    'newest', g.newest or '', 'undo', g.undo or '', 'changed', micros(math.max(g.changed, g.now)),
    'shifted', micros(g.shifted), 'again', g.again, 'goes', micros(g.goes), 'turn', g.turn or '',
    'turnUntil', micros(g.turnUntil), 'turnSince', micros(g.turnSince),
    'second', g.second, 'starts', g.starts, 'firsts', g.firsts, 'mean', string.format('%.3f', g.mean),
    'costSum', micros(g.costSum), 'costOut', micros(g.costOut))
end

--- @include "expiry"
--- @include "costs"

-- BullMQ's score of a delayed job is 4096 times its time in ms, and a count.
local function delayedScore(t) return math.floor(t / 1000) * 4096 end

-- The server's clock was set back, or another server with another clock has taken over. Everything that was `by` ahead
-- of the old clock is as far ahead of the new one: the gate neither stays closed until the old time comes again nor
-- lets anything through that was not due. (A clock that is set forward cannot be told from time that has passed.)
local REWIND_MICROS = 1000000
local function rewind(g, by)
  local fields = { 'changed', micros(g.now), 'undo', '', 'second', 0, 'starts', 0 }
  for _, name in ipairs({ 'tat', 'last', 'pausedUntil', 'blockedUntil', 'overrideUntil', 'turnUntil', 'turnSince', 'slowAt', 'learnedUntil' }) do
    if g[name] > 0 and g[name] < FOREVER then
      fields[#fields + 1] = name
      fields[#fields + 1] = micros(math.max(1, g[name] - by))
    end
  end
  call('HSET', KEYS[1], unpack(fields))
  local function shiftAll(name, ahead)
    local entries = call('ZRANGE', base .. name, 0, -1, 'WITHSCORES')
    for i = 1, #entries, 2 do call('ZADD', base .. name, micros(tonumber(entries[i + 1]) - ahead), entries[i]) end
  end
  for _, name in ipairs({ 'log', 'slots', 'later', 'recalled', 'inflight', 'leases', 'deadlines' }) do shiftAll(name, by) end
  shiftAll('delayed', delayedScore(by))
  rewindCosts(by)
end

-- Slots further ahead than this are confirmed by their holders before they come (see gate/slot.ts), so that they can be
-- taken away from them.
local NEAR_MICROS, LATER_MICROS = 75000, 25000

-- Slots that were reserved far ahead (for further attempts) under a pause or rate that no longer holds must not keep
-- the gate closed: whoever holds one is refused when he confirms it, and reserves anew.
local function recall(g)
  local near = g.now + NEAR_MICROS
  call('ZREMRANGEBYSCORE', base .. 'recalled', '-inf', micros(g.now - 60000000))
  if g.last <= near then return end
  local ids = call('ZRANGEBYSCORE', base .. 'later', '(' .. micros(near), '+inf', 'WITHSCORES')
  for i = 1, #ids, 2 do
    call('ZREM', base .. 'log', ids[i])
    changeCost(g, tonumber(ids[i + 1]), string.match(ids[i], '^(.*)@'), 0)
    call('ZREM', base .. 'later', ids[i])
    call('ZADD', base .. 'recalled', ids[i + 1], ids[i])
  end
  g.tat, g.last, g.part, g.newest, g.undo = near + (g.tat - g.last), near, 0, '', ''
  g.dirty = true
end

-- Carries the schedule over to another rate. The debt is kept in calls (or cost), and the new spacing counts from the last
-- slot: a schedule that reached far ahead (1/h) does not delay the new one, and used credit does not come back. Where cost
-- is counted in place of calls, or calls in place of cost, the debt is kept in time.
local function reschedule(g, before)
  if before.cycle == g.cycle and before.limit == g.limit then return end
  recall(g)
  if before.weighed == g.weighed then g.tat = g.last + math.ceil((g.tat - g.last) / before.spacing * g.spacing) end
  g.part, g.newest, g.undo = 0, '', ''
  g.dirty = true
end

-- The gate as a table, or nil when nobody has declared this bucket (or its keys have expired).
local function load(now)
  local g = read(now)
  if g and g.changed - now > REWIND_MICROS then
    rewind(g, g.changed - now)
    g = read(now)
  end
  if g and g.overrideUntil > 0 and g.overrideUntil <= now then
    local before = g
    endOverride()
    g = read(now)
    reschedule(g, before)
    save(g)
  end
  return g
end

--- @include "slots"
