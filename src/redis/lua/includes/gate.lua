-- The state of one bucket's gate, shared by every script that moves calls.
--
-- Times are Redis TIME in whole microseconds, which a double holds exactly.
--- @include "bucket"

-- The fields that scripts read. The first 20 change as they go, and are written back; the 4th to the 32nd are numbers.
local FIELDS = {
  'newest', 'undo', 'turn',
  'tat', 'part', 'last', 'changed', 'shifted', 'again', 'goes', 'turnUntil', 'turnSince', 'second', 'starts', 'firsts',
  'mean', 'costSum', 'costOut', 'ruledFrom', 'ranked',
  'limit', 'per', 'burst', 'late', 'capacity', 'concurrency', 'pausedUntil', 'blockedUntil', 'overrideUntil', 'slow',
  'slowAt', 'learnedUntil',
  'rules', 'classic', 'learned', 'weighed', 'overflow', 'cluster',
}

--- @include "expiry"
--- @lazy "costs"
--- @lazy "classic"

local function readWindows(g, texts)
  for n, per, cost in string.gmatch(texts, '(%d+)/(%d+)(c?)') do
    local window = {
      limit = tonumber(n), cycle = tonumber(per) + g.late, weighed = cost == 'c', text = n .. '/' .. per .. cost,
    }
    g.windows[#g.windows + 1] = window
    if window.weighed then
      g.costReach = math.max(g.costReach, window.cycle)
    else
      g.longest = math.max(g.longest, window.limit)
    end
    g.reach = math.max(g.reach, window.cycle)
  end
end

local function read(now)
  local FIRST_NUMBER, LAST_NUMBER = 4, 32
  local v = call('HMGET', KEYS[1], unpack(FIELDS))
  for i = FIRST_NUMBER, LAST_NUMBER do v[i] = (v[i] or 0) + 0 end
  -- In the order of FIELDS. To make a large table at once takes less time than to let it grow.
  local g = {
    newest = v[1], undo = v[2], turn = v[3],
    tat = v[4], part = v[5], last = v[6], changed = v[7], shifted = v[8], again = v[9], goes = v[10],
    turnUntil = v[11], turnSince = v[12], second = v[13], starts = v[14], firsts = v[15], mean = v[16],
    costSum = v[17], costOut = v[18], ruledFrom = v[19], ranked = v[20],
    limit = v[21], per = v[22], burst = v[23], late = v[24], capacity = v[25], concurrency = v[26],
    pausedUntil = v[27], blockedUntil = v[28], overrideUntil = v[29], slow = v[30], slowAt = v[31],
    learnedUntil = v[32],
    rules = v[33] or '', classic = v[34] or '', learned = v[35] or '', weighed = v[36] == '1', overflow = v[37],
    cluster = v[38],
    now = now, was = v, cycle = 0, tau = 0, share = 1, spacing = 0, closedUntil = 0, ruled = '',
    windows = {}, longest = 0, reach = 0, costReach = 0,
  }
  if g.limit == 0 then return nil end
  -- Starts may be `late` late, so slots lie that much further apart: then no window of the period holds more than N.
  g.cycle = g.per + g.late
  -- GCRA's tolerance (ITU-T I.371): how far ahead of the even schedule a burst may run. Slowing down does not widen it.
  g.tau = math.floor((g.burst - 1) * g.cycle / g.limit)
  if g.slow > 0 then
    -- AIMD (Chiu & Jain 1989; RFC 5681, 3.1): a refusal halves the rate, and what was lost comes back by equal steps of
    -- time, the whole rate within a minute or 20 calls. `slow` is the share of the rate at `slowAt`.
    local RECOVERY_MICROS, RECOVERY_CALLS = 60000000, 20
    local whole = math.max(RECOVERY_MICROS, RECOVERY_CALLS * g.cycle / g.limit)
    g.share = math.min(1, g.slow + math.max(0, now - g.slowAt) / whole)
    g.cycle = math.ceil(g.cycle / g.share)
  end
  g.spacing = g.cycle / g.limit
  g.closedUntil = math.max(g.pausedUntil, g.blockedUntil)
  if g.rules ~= '' then readWindows(g, g.rules) end
  -- What the server named last holds beside the rules.
  if g.learnedUntil > now then readWindows(g, g.learned) end
  g.ruled = g.classic
  g.classic = g.ruled == '' and {} or classic().read(g.ruled)
  return g
end

local function save(g)
  if not g.dirty then return end
  local FIRST_NUMBER, LAST_CHANGING = 4, 20
  g.changed = math.max(g.changed, g.now)
  local fields, n = {}, 0
  for i = 1, LAST_CHANGING do
    local name = FIELDS[i]
    local value = g[name]
    if value ~= g.was[i] then
      g.was[i] = value
      -- Redis itself writes whole numbers faster.
      if i >= FIRST_NUMBER and value % 1 ~= 0 then value = string.format(name == 'mean' and '%.3f' or '%.0f', value) end
      fields[n + 1], fields[n + 2] = name, value or ''
      n = n + 2
    end
  end
  if n > 0 then call('HSET', KEYS[1], unpack(fields)) end
  g.dirty = false
end

--- @lazy "changes"

-- The gate as a table, or nil when nobody has declared this bucket (or its keys have expired).
local function load(now)
  local REWIND_MICROS = 1000000
  local g = read(now)
  if g and g.changed - now > REWIND_MICROS then
    changes().rewind(g, g.changed - now)
    g = read(now)
  end
  if g and g.overrideUntil > 0 and g.overrideUntil <= now then
    local before = g
    changes().endOverride()
    g = read(now)
    changes().reschedule(g, before)
    save(g)
  end
  return g
end

--- @include "slots"
