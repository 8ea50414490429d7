-- The state of one bucket's gate, shared by every script that moves calls.
--
-- KEYS[1] is always the gate hash, `<prefix>:{<bucket>}:gate`. All other keys of the bucket share its hash tag and are
-- derived from it; BullMQ's own scripts derive job keys in the same way.
--
-- Times are Redis TIME in whole microseconds, which a double holds exactly.
local base = string.sub(KEYS[1], 1, -5)
local prefix, bucket = string.match(KEYS[1], '^(.*):{(.*)}:gate$')
--- @include "clock"

--- @body

-- BullMQ's scripts tell each step of each job to an event stream, up to five times a call. Nobody here reads it.
local quiet = {
  call = function(command, ...)
    if command ~= 'XADD' and command ~= 'XTRIM' then return call(command, ...) end
  end,
}

-- The fields that scripts read. The first ones change as they go, and are written back; of these, and of those that come
-- next, all but the first three are numbers.
local FIELDS = {
  'newest', 'undo', 'turn',
  'tat', 'part', 'last', 'changed', 'shifted', 'again', 'goes', 'turnUntil', 'turnSince', 'second', 'starts', 'firsts',
  'mean', 'costSum', 'costOut', 'ruledFrom', 'ranked',
  'limit', 'per', 'burst', 'late', 'capacity', 'concurrency', 'pausedUntil', 'blockedUntil', 'overrideUntil', 'slow',
  'slowAt', 'learnedUntil',
  'rules', 'classic', 'learned', 'weighed', 'overflow', 'cluster',
}
local FIRST_NUMBER, LAST_CHANGING, LAST_NUMBER = 4, 20, 32
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

--- @include "expiry"
--- @include "costs"
--- @include "classic"

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
  local g = { now = now, was = values }
  for i = 1, #FIELDS do
    local value = values[i]
    if i >= FIRST_NUMBER and i <= LAST_NUMBER then value = tonumber(value or 0) end
    g[FIELDS[i]], values[i] = value, value
  end
  if g.limit == 0 then return nil end
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
  local windows = g.rules or ''
  -- What the server named last holds beside the rules.
  if g.learnedUntil > now then windows = windows .. ',' .. (g.learned or '') end
  for n, per, cost in string.gmatch(windows, '(%d+)/(%d+)(c?)') do
    local window = { limit = tonumber(n), cycle = tonumber(per) + g.late, weighed = cost == 'c', text = n .. '/' .. per .. cost }
    g.windows[#g.windows + 1] = window
    if window.weighed then
      g.costReach = math.max(g.costReach, window.cycle)
    else
      g.longest = math.max(g.longest, window.limit)
    end
    g.reach = math.max(g.reach, window.cycle)
  end
  g.ruled = g.classic or ''
  g.classic = classicOf(g.ruled)
  return g
end

local function save(g)
  if not g.dirty then return end
  g.changed = math.max(g.changed, g.now)
  local fields, n = {}, 0
  for i = 1, LAST_CHANGING do
    local name = FIELDS[i]
    local value = g[name]
    if value ~= g.was[i] then
      g.was[i] = value
      if type(value) == 'number' then value = string.format(name == 'mean' and '%.3f' or '%.0f', value) end
      fields[n + 1], fields[n + 2] = name, value or ''
      n = n + 2
    end
  end
  if n > 0 then call('HSET', KEYS[1], unpack(fields)) end
  g.dirty = false
end

-- BullMQ's score of a delayed job is 4096 times its time in ms, and a count.
local function delayedScore(t) return math.floor(t / 1000) * 4096 end

-- The server's clock was set back, or another server with another clock has taken over. Everything that was `by` ahead
-- of the old clock is as far ahead of the new one: the gate neither stays closed until the old time comes again nor
-- lets anything through that was not due. (A clock that is set forward cannot be told from time that has passed.)
local REWIND_MICROS = 1000000
local function rewind(g, by)
  shiftClassic(g, by)
  local fields = { 'changed', micros(g.now), 'undo', '', 'second', 0, 'starts', 0 }
  for _, name in ipairs({
    'tat', 'last', 'ruledFrom', 'pausedUntil', 'blockedUntil', 'overrideUntil', 'turnUntil', 'turnSince', 'slowAt', 'learnedUntil',
  }) do
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

-- Slots nearer than this are never taken away (see gate/line.ts).
local NEAR_MICROS = 75000

-- Slots that were reserved far ahead (for further attempts) under a pause or rate that no longer holds must not keep
-- the gate closed: whoever holds one is refused when he confirms it, and reserves anew.
local function recall(g)
  local near = g.now + NEAR_MICROS
  call('ZREMRANGEBYSCORE', base .. 'recalled', '-inf', micros(g.now - 60000000))
  -- The only one has been given back.
  if g.last <= near then return recallClassic(g, near) end
  local ids = call('ZRANGEBYSCORE', base .. 'later', '(' .. micros(near), '+inf', 'WITHSCORES')
  for i = 1, #ids, 2 do
    -- Not the slot in the name: that may be of a clock that has been set back since.
    local id, slot = string.match(ids[i], '^(.*)@'), tonumber(ids[i + 1])
    call('ZREM', base .. 'log', ids[i])
    call('ZREM', base .. 'later', ids[i])
    call('ZADD', base .. 'recalled', ids[i + 1], ids[i])
    local less = changeCost(g, slot, id, 0)
    uncountClassic(g, slot, less and -less or 1)
  end
  recallClassic(g, near)
  if #ids > 0 then age(g, 'recalled') end
  g.tat, g.last, g.part, g.newest, g.undo = near + (g.tat - g.last), near, 0, '', ''
  g.dirty = true
end

-- Carries the schedule over to another rate. The debt is kept in calls (or cost), and the new spacing counts from the last
-- slot: a schedule that reached far ahead (1/h) does not delay the new one, and used credit does not come back. Where cost
-- is counted in place of calls, or calls in place of cost, the debt is kept in time.
local function reschedule(g, before)
  if before.ruled ~= g.ruled then g.ruledFrom, g.dirty = g.last, true end
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

--- @body
--- @include "slots"
