-- The state of one bucket's gate, shared by every script that moves calls.
--
-- KEYS[1] is always the gate hash, `<prefix>:{<bucket>}:gate`. All other keys of the bucket share its hash tag and are
-- derived from it; BullMQ's own scripts derive job keys in the same way.
--
-- Times are Redis TIME in microseconds. A double holds them exactly to a quarter of a microsecond.
local base = string.sub(KEYS[1], 1, -5)
local prefix, bucket = string.match(KEYS[1], '^(.*):{(.*)}:gate$')
local call = redis.call

local function micros(t) return string.format('%.0f', t) end

-- Tests and simulations inject the time; everybody else gets the server's.
local function clock(injected)
  if injected ~= '' then return tonumber(injected) end
  local t = call('TIME')
  return tonumber(t[1]) * 1000000 + tonumber(t[2])
end

local FIELDS = {
  'limit', 'per', 'burst', 'late', 'rules', 'capacity', 'overflow', 'concurrency', 'cluster',
  'tat', 'last', 'pausedUntil', 'pauseReason', 'blockedUntil', 'blockReason',
  'turn', 'turnUntil', 'turnSince', 'overrideUntil', 'again', 'shifted',
}

local function writePolicy(policy)
  for name, value in pairs(policy) do call('HSET', KEYS[1], name, value) end
end

-- A policy set with an expiry gives way to the declared one.
local function endOverride()
  local declared = call('HGET', KEYS[1], 'declared')
  call('HDEL', KEYS[1], 'override', 'overrideUntil')
  writePolicy(cjson.decode(declared))
end

-- The gate as a table, or nil when nobody has declared this bucket (or its keys have expired).
local function load(now)
  local values = call('HMGET', KEYS[1], unpack(FIELDS))
  if not values[1] then return nil end
  local g = {}
  for i, name in ipairs(FIELDS) do g[name] = values[i] end
  if g.overrideUntil and tonumber(g.overrideUntil) > 0 and tonumber(g.overrideUntil) <= now then
    endOverride()
    return load(now)
  end
  for _, name in ipairs({ 'limit', 'per', 'burst', 'late', 'capacity', 'concurrency', 'tat', 'last',
                          'pausedUntil', 'blockedUntil', 'turnUntil', 'turnSince', 'again', 'shifted' }) do
    g[name] = tonumber(g[name] or 0)
  end
  -- Starts may be `late` late, so slots lie that much further apart: then no window of the period holds more than N.
  g.spacing = (g.per + g.late) / g.limit
  -- GCRA's tolerance (ITU-T I.371): how far ahead of the even schedule a burst may run.
  g.tau = (g.burst - 1) * g.spacing
  g.windows, g.longest = {}, 0
  for n, per in string.gmatch(g.rules or '', '(%d+)/(%d+)') do
    g.windows[#g.windows + 1] = { limit = tonumber(n), per = tonumber(per) }
    g.longest = math.max(g.longest, tonumber(n))
  end
  return g
end

-- The earliest time at which one more call may start. O(rules · log log-size).
local function nextSlot(g, now)
  local slot = math.max(now, g.tat - g.tau, g.pausedUntil, g.blockedUntil)
  for _, window in ipairs(g.windows) do
    local nth = call('ZRANGE', base .. 'log', -window.limit, -window.limit, 'WITHSCORES')
    if nth[2] then slot = math.max(slot, tonumber(nth[2]) + window.per + g.late) end
  end
  return math.ceil(slot)
end

-- When the call with `ahead` others before it will start, if nothing changes. A lower bound where rules interact.
local function expectedSlot(g, now, ahead)
  local first = nextSlot(g, now)
  local slot = first + ahead * g.spacing
  for _, window in ipairs(g.windows) do
    local rounds, rest = math.floor(ahead / window.limit), ahead % window.limit
    local rank = -(window.limit - rest)
    local nth = call('ZRANGE', base .. 'log', rank, rank, 'WITHSCORES')
    if nth[2] then
      slot = math.max(slot, tonumber(nth[2]) + (rounds + 1) * (window.per + g.late))
    else
      slot = math.max(slot, first + rounds * (window.per + g.late))
    end
  end
  return slot
end

-- The depth that capacity bounds: calls whose first attempt has not started. `again` counts those that wait for a second
-- time (their worker died or closed): they had their place and gave it up when they first started.
local function occupied(g, now)
  return call('LLEN', base .. 'wait') + call('ZCARD', base .. 'prioritized') + call('ZCARD', base .. 'delayed')
    + call('ZCOUNT', base .. 'slots', '(' .. micros(now), '+inf') - g.again
end

-- Takes a slot. `first` says that this is the call's first attempt, which occupies a place until it starts.
local function reserve(g, slot, id, first)
  g.tat = math.max(g.tat, slot) + g.spacing
  g.last = slot
  g.dirty = true
  if first then call('ZADD', base .. 'slots', slot, id) end
  if g.longest > 0 then
    call('ZADD', base .. 'log', slot, id .. '@' .. micros(slot))
    call('ZREMRANGEBYRANK', base .. 'log', 0, -g.longest - 1)
  end
end

-- Undoes a reservation whose start did not happen. Only the newest slot can be used again by somebody else; an older
-- one stays empty, since later slots have been promised already.
local function giveBack(g, slot, id)
  call('ZREM', base .. 'slots', id)
  if g.longest > 0 then call('ZREM', base .. 'log', id .. '@' .. micros(slot)) end
  if g.last == slot then
    g.tat = g.tat - g.spacing
    g.dirty = true
  end
end

-- A start that turned out later than `late` (a connection had to be made first) must not crowd the starts that follow:
-- the schedule moves by the excess, or skips one slot where that is less. The late start then counts in place of the
-- skipped one, so windows still hold, as long as it is not late by a whole period. `seen` is what the schedule had moved
-- in all when the slot was reserved: several starts that were late together need not move it several times.
local function shift(g, id, slot, excess, seen)
  local more = math.min(excess - (g.shifted - seen), g.spacing)
  if more <= 0 then return end
  g.tat = g.tat + more
  g.last = g.last + more
  g.shifted = g.shifted + more
  g.dirty = true
  if g.longest > 0 then call('ZADD', base .. 'log', 'XX', slot + excess, id .. '@' .. micros(slot)) end
end

local IDLE_MS = 3600000

local function save(g)
  if not g.dirty then return end
  call('HSET', KEYS[1], 'tat', string.format('%.2f', g.tat), 'last', micros(g.last),
    'again', g.again, 'shifted', micros(g.shifted), 'turn', g.turn or '', 'turnUntil', micros(g.turnUntil), 'turnSince', micros(g.turnSince))
end

-- Buckets come by the thousand (one per host or tenant) and must go by themselves, but not before their rules, pauses
-- and changed policies have run out.
local function expireWhenIdle(g, now)
  if call('HEXISTS', KEYS[1], 'override') == 1 then
    call('PERSIST', KEYS[1])
    return
  end
  local keep = IDLE_MS + math.max(0, g.tat - now, g.pausedUntil - now, g.blockedUntil - now) / 1000
  for _, window in ipairs(g.windows) do keep = math.max(keep, IDLE_MS + (window.per + g.late) / 1000) end
  for _, name in ipairs({ 'gate', 'meta', 'id', 'log', 'slots', 'idle', 'leases', 'marker', 'events', 'stalled' }) do
    call('PEXPIRE', base .. name, math.ceil(keep))
  end
end
