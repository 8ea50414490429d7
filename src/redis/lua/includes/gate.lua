-- The state of one bucket's gate, shared by every script that moves calls.
--
-- KEYS[1] is always the gate hash, `<prefix>:{<bucket>}:gate`. All other keys of the bucket share its hash tag and are
-- derived from it; BullMQ's own scripts derive job keys in the same way.
--
-- Times are Redis TIME in whole microseconds, which a double holds exactly.
local base = string.sub(KEYS[1], 1, -5)
local prefix, bucket = string.match(KEYS[1], '^(.*):{(.*)}:gate$')
--- @include "clock"

-- BullMQ's scripts tell each step of each job to an event stream, up to five times a call. Nobody here reads it.
local quiet = {
  call = function(command, ...)
    if command ~= 'XADD' and command ~= 'XTRIM' then return call(command, ...) end
  end,
}

local FIELDS = {
  'limit', 'per', 'burst', 'late', 'rules', 'capacity', 'overflow', 'concurrency', 'cluster',
  'tat', 'part', 'last', 'newest', 'undo', 'changed', 'shifted',
  'pausedUntil', 'pauseReason', 'blockedUntil', 'blockReason',
  'turn', 'turnUntil', 'turnSince', 'overrideUntil', 'again', 'goes',
  'slow', 'slowAt', 'learned', 'learnedUntil', 'second', 'starts',
}
local NUMBERS = {
  'limit', 'per', 'burst', 'late', 'capacity', 'concurrency', 'tat', 'part', 'last', 'changed', 'shifted',
  'pausedUntil', 'blockedUntil', 'turnUntil', 'turnSince', 'overrideUntil', 'again', 'goes',
  'slow', 'slowAt', 'learnedUntil', 'second', 'starts',
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
  g.windows, g.longest, g.reach = {}, 0, 0
  -- What the server named last holds beside the rules.
  local learned = g.learnedUntil > now and g.learned or ''
  for n, per in string.gmatch((g.rules or '') .. ',' .. learned, '(%d+)/(%d+)') do
    local window = { limit = tonumber(n), cycle = tonumber(per) + g.late }
    g.windows[#g.windows + 1] = window
    g.longest = math.max(g.longest, window.limit)
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
    'second', g.second, 'starts', g.starts)
end

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
  for _, name in ipairs({ 'log', 'slots', 'later', 'recalled', 'inflight', 'leases' }) do
    local entries = call('ZRANGE', base .. name, 0, -1, 'WITHSCORES')
    for i = 1, #entries, 2 do call('ZADD', base .. name, micros(tonumber(entries[i + 1]) - by), entries[i]) end
  end
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
    call('ZREM', base .. 'later', ids[i])
    call('ZADD', base .. 'recalled', ids[i + 1], ids[i])
  end
  g.tat, g.last, g.part, g.newest, g.undo = near + (g.tat - g.last), near, 0, '', ''
  g.dirty = true
end

-- Carries the schedule over to another rate. The debt is kept in calls, and the new spacing counts from the last slot:
-- a schedule that reached far ahead (1/h) does not delay the new one, and used credit does not come back.
local function reschedule(g, before)
  if before.cycle == g.cycle and before.limit == g.limit then return end
  recall(g)
  g.tat = g.last + math.ceil((g.tat - g.last) / before.spacing * g.spacing)
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

-- The theoretical arrival time. No credit is saved up while the gate is closed: reopening releases no burst.
local function arrival(g) return math.max(g.tat, g.closedUntil + g.tau) end

-- The earliest time at which one more call may start. O(rules · log log-size).
local function nextSlot(g, now)
  -- Never before the last one: where a rule had pushed that ahead, a burst would overtake it.
  local slot = math.max(now, arrival(g) - g.tau, g.last, g.closedUntil)
  for _, window in ipairs(g.windows) do
    local nth = call('ZRANGE', base .. 'log', -window.limit, -window.limit, 'WITHSCORES')
    if nth[2] then slot = math.max(slot, tonumber(nth[2]) + window.cycle) end
  end
  return slot
end

-- How far `calls` calls move the schedule on, and what is left of the last µs: sums of whole numbers, so that an
-- interval such as 1/3 s neither drifts nor lets N + 1 calls into a window by a rounded µs.
local function advance(g, part, calls)
  local rest = part + calls * (g.cycle % g.limit)
  return calls * math.floor(g.cycle / g.limit) + math.floor(rest / g.limit), rest % g.limit
end

-- When the call with `ahead` others before it will start, if nothing changes. A lower bound where rules interact.
local function expectedSlot(g, now, ahead)
  local first, tat, part = nextSlot(g, now), arrival(g), g.part
  if tat > g.tat then part = 0 end
  if first > tat then tat, part = first, 0 end
  local slot = math.max(first, tat + advance(g, part, ahead) - g.tau)
  for _, window in ipairs(g.windows) do
    local rounds, rest = math.floor(ahead / window.limit), ahead % window.limit
    local rank = -(window.limit - rest)
    local nth = call('ZRANGE', base .. 'log', rank, rank, 'WITHSCORES')
    if nth[2] then
      slot = math.max(slot, tonumber(nth[2]) + (rounds + 1) * window.cycle)
    else
      slot = math.max(slot, first + rounds * window.cycle)
    end
  end
  return slot
end

-- The depth that capacity bounds: calls whose first attempt has not started. `again` counts those that wait for a second
-- time (their worker died or closed): they had their place and gave it up when they first started.
local function depthOf(g, now, waiting)
  return waiting + call('ZCARD', base .. 'delayed') + call('ZCOUNT', base .. 'slots', '(' .. micros(now), '+inf') - g.again
end
local function occupied(g, now)
  return depthOf(g, now, call('LLEN', base .. 'wait') + call('ZCARD', base .. 'prioritized'))
end

-- Starts that no window can see any more are forgotten, except the newest, which a longer window set later will count.
local function trimLog(g, now)
  local unseen = call('ZCOUNT', base .. 'log', '-inf', micros(now - g.reach))
  local excess = math.min(unseen, call('ZCARD', base .. 'log') - g.longest)
  if excess > 0 then call('ZREMRANGEBYRANK', base .. 'log', 0, excess - 1) end
end

local IDLE_MICROS, FOREVER_MICROS = 3600000000, 3155760000000000

-- A key that comes anew in a bucket whose keys go by themselves goes with them.
local function age(g, name)
  if g.goes > g.now then call('PEXPIRE', base .. name, math.ceil((g.goes - g.now) / 1000)) end
end

-- Starts per second, in a ring of an hour. The second that runs is counted in the gate, so that a call costs no command.
local RING_SECONDS = 3600
local function tally(g, slot, starts)
  local second = math.floor(slot / 1000000)
  if second > g.second then
    if g.starts > 0 then
      call('HSET', base .. 'usage', g.second % RING_SECONDS, g.second .. ' ' .. g.starts)
      age(g, 'usage')
    end
    g.second, g.starts = second, 0
  end
  if second == g.second then g.starts = math.max(0, g.starts + starts) end
end

-- Takes a slot. `first` says that this is the call's first attempt, which occupies a place until it starts.
local function reserve(g, now, slot, id, first)
  g.undo = string.format('%.0f %.0f %.0f', g.tat, g.part, g.last)
  local tat, part = arrival(g), g.part
  if tat > g.tat then part = 0 end
  if slot > tat then tat, part = slot, 0 end
  local step
  step, g.part = advance(g, part, 1)
  g.tat = tat + step
  g.last, g.newest = slot, id
  tally(g, slot, 1)
  g.dirty = true
  if first then
    call('ZADD', base .. 'slots', slot, id)
    age(g, 'slots')
  end
  if slot - now > LATER_MICROS then
    call('ZREMRANGEBYSCORE', base .. 'later', '-inf', micros(now - 60000000))
    call('ZADD', base .. 'later', slot, id .. '@' .. micros(slot))
  end
  if g.longest > 0 then
    call('ZADD', base .. 'log', slot, id .. '@' .. micros(slot))
    age(g, 'log')
    trimLog(g, now)
  end
end

-- Undoes a reservation whose start did not happen. Only the newest slot can be used again by somebody else; an older
-- one stays empty, since later slots have been promised already.
local function giveBack(g, slot, id)
  -- A call may hold two slots for a while: one for its next attempt, and one that it has left to another call.
  local member = id .. '@' .. micros(slot)
  call('ZREM', base .. 'later', member)
  call('ZREM', base .. 'recalled', member)
  if g.longest > 0 then call('ZREM', base .. 'log', member) end
  tally(g, slot, -1)
  g.dirty = true
  if g.newest ~= id or g.last ~= slot or not g.undo or g.undo == '' then return end
  local tat, part, last = string.match(g.undo, '^(%d+) (%d+) (%d+)$')
  g.tat, g.part, g.last = tonumber(tat), tonumber(part), tonumber(last)
  g.newest, g.undo = '', ''
  g.dirty = true
end

-- A start that turned out later than `late` (a connection had to be made first) must not crowd the starts that follow:
-- the schedule moves by the excess, or skips one slot where that is less. The late start then counts in place of the
-- skipped one, so windows still hold, as long as it is not late by a whole period. `seen` is what the schedule had moved
-- in all when the slot was reserved: several starts that were late together need not move it several times.
local function shift(g, id, slot, excess, seen)
  local more = math.min(excess - (g.shifted - seen), math.ceil(g.spacing))
  if more <= 0 then return end
  g.tat = g.tat + more
  g.last = g.last + more
  g.shifted = g.shifted + more
  g.newest, g.undo = '', ''
  g.dirty = true
  -- Not later than now: the slot may be one of a clock that has been set back since.
  local start = math.min(slot + excess, g.now)
  if g.longest > 0 then call('ZADD', base .. 'log', 'XX', start, id .. '@' .. micros(slot)) end
end

local VOLATILE = {
  'gate', 'meta', 'id', 'log', 'slots', 'later', 'recalled', 'inflight', 'idle', 'leases', 'marker', 'events', 'stalled',
  'usage',
}

-- A bucket with work stays. `goes` is when its keys go by themselves, 0 for never.
local function persist(g)
  if g.goes == 0 then return end
  for _, name in ipairs(VOLATILE) do call('PERSIST', base .. name) end
  g.goes, g.dirty = 0, true
end

-- Buckets come by the thousand (one per host or tenant) and must go by themselves, but not before their rules, pauses
-- and changed policies have run out. Put off only when it has come half as near as it may: a bucket may be used often.
local function expireWhenIdle(g, now)
  if g.overrideUntil == 0 and call('HEXISTS', KEYS[1], 'override') == 1 then return persist(g) end
  local last = math.max(g.tat, g.pausedUntil, g.blockedUntil, g.overrideUntil, now + g.reach)
  local goes = math.min(last + IDLE_MICROS, now + FOREVER_MICROS)
  if g.goes > 0 and g.goes >= goes - IDLE_MICROS / 2 then return end
  for _, name in ipairs(VOLATILE) do call('PEXPIRE', base .. name, math.ceil((goes - now) / 1000)) end
  g.goes, g.dirty = goes, true
end
