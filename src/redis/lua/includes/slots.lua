-- Slots: when the next call may start, and who has taken which.

-- The theoretical arrival time. No credit is saved up while the gate is closed: reopening releases no burst.
local function arrival(g) return math.max(g.tat, g.closedUntil + g.tau) end

-- How far so many calls (or units of cost) move the schedule on, and what is left of the last µs: sums of whole numbers,
-- so that an interval such as 1/3 s neither drifts nor lets N + 1 calls into a window by a rounded µs.
local function advance(g, part, units)
  local rest = part + units * (g.cycle % g.limit)
  return units * math.floor(g.cycle / g.limit) + math.floor(rest / g.limit), rest % g.limit
end

-- What one call takes of the rate.
local function weightOf(g, cost) return g.weighed and cost or 1 end

-- How much later than a call of cost 1 it may start. GCRA with weights: a call waits until its cost fits into what a burst
-- may hold; one that exceeds all of it, until that is empty.
local function excessOf(g, cost)
  return math.ceil((math.min(weightOf(g, cost), g.burst) - 1) * g.cycle / g.limit)
end

-- The earliest time at which one more call, of that cost, may start; what is the last to allow it becomes `why.name`.
-- O(rules · log log-size), and what classic rules cost.
local function nextSlot(g, now, cost, why)
  cost = cost or 1
  -- Never before the last one: where a rule had pushed that ahead, a burst would overtake it.
  local slot = math.max(now, arrival(g) - g.tau + excessOf(g, cost), g.last, g.closedUntil)
  if why and slot > now then why.name = slot > g.closedUntil and 'rate' or 'closed' end
  for _, window in ipairs(g.windows) do
    local free
    if window.weighed then
      free = costRoom(g, window, cost)
    else
      local nth = call('ZRANGE', base .. 'log', -window.limit, -window.limit, 'WITHSCORES')
      free = nth[2] and tonumber(nth[2]) + window.cycle or 0
    end
    if why and free > slot then why.name = window.text end
    slot = math.max(slot, free)
  end
  for _, one in ipairs(g.classic) do
    local free = classicSlot(one, slot, cost)
    if why and free > slot then why.name = one.text end
    slot = math.max(slot, free)
  end
  return slot
end

-- When a call of that cost with `ahead` others before it will start, if nothing changes, and if they cost what the last
-- ones did on average. A lower bound where rules interact.
local function expectedSlot(g, now, ahead, own)
  own = own or 1
  local first, tat, part = nextSlot(g, now, own), arrival(g), g.part
  if tat > g.tat then part = 0 end
  if first > tat then tat, part = first, 0 end
  local cost = math.floor(ahead * math.max(1, g.mean))
  local slot = math.max(first, tat + advance(g, part, g.weighed and cost or ahead) - g.tau + excessOf(g, own))
  for _, window in ipairs(g.windows) do
    local units = window.weighed and cost or ahead
    local rounds, rest = math.floor(units / window.limit), units % window.limit
    local leaves
    if window.weighed then
      leaves = costRoom(g, window, rest + own)
    else
      local rank = -(window.limit - rest)
      leaves = tonumber(call('ZRANGE', base .. 'log', rank, rank, 'WITHSCORES')[2] or 0) + window.cycle
    end
    slot = math.max(slot, math.max(first, leaves) + rounds * window.cycle)
  end
  for _, one in ipairs(g.classic) do
    local units, most = (one.weighed and cost or ahead), one.rule.most
    local rest = math.min(units % most + 1, most)
    slot = math.max(slot, one.X.earliest(one.key, one.rule, first, rest) + math.floor(units / most) * one.cycle)
  end
  return slot
end

-- The depth that capacity bounds: calls whose first attempt has not started. `again` counts those that wait for a second
-- time (their worker died or closed): they had their place and gave it up when they first started.
local function redeliveries(g) return g.again > 0 and call('ZCARD', base .. 'delayed') or 0 end
local function depthOf(g, now, waiting)
  return waiting + redeliveries(g) + call('ZCOUNT', base .. 'slots', '(' .. micros(now), '+inf') - g.again
end
-- `ranked` is 1 where calls of high or low priority may wait: few buckets have such, and every call would ask.
local function rankedCalls(g) return g.ranked > 0 and call('ZCARD', base .. 'prioritized') or 0 end
local function waitingCalls(g) return call('LLEN', base .. 'wait') + rankedCalls(g) end
local function occupied(g, now) return depthOf(g, now, waitingCalls(g)) end

-- Starts that no window can see any more are forgotten, except the newest, which a longer window set later will count.
local function trimLog(g, now)
  local unseen = call('ZCOUNT', base .. 'log', '-inf', micros(now - g.reach))
  local excess = math.min(unseen, call('ZCARD', base .. 'log') - g.longest)
  if excess > 0 then call('ZREMRANGEBYRANK', base .. 'log', 0, excess - 1) end
end

--- @include "ring"

-- What happened, by second, for an hour: starts, calls that we refused, that the server refused, and that failed.
local RING_SECONDS = 3600
local STARTED, REFUSED, THROTTLED, FAILED = '', 'r', 't', 'f'
local function note(g, now, n, kind)
  if n == 0 then return end
  ringAdd(base .. 'usage', RING_SECONDS, math.floor(now / 1000000), n, kind)
  age(g, 'usage')
end

-- The second that runs is counted in the gate, so that a start costs no command.
local function tally(g, slot, starts)
  local second = math.floor(slot / 1000000)
  if second > g.second then
    if g.starts > 0 then
      ringAdd(base .. 'usage', RING_SECONDS, g.second, g.starts, STARTED)
      age(g, 'usage')
    end
    g.second, g.starts = second, 0
  end
  if second == g.second then g.starts = math.max(0, g.starts + starts) end
end

-- Takes a slot. `first` says that this is the call's first attempt, which occupies a place until it starts.
local function reserve(g, now, slot, id, first, cost)
  cost = cost or 1
  g.undo = string.format('%.0f %.0f %.0f', g.tat, g.part, g.last)
  local tat, part = arrival(g), g.part
  if tat > g.tat then part = 0 end
  if slot > tat then tat, part = slot, 0 end
  local step
  step, g.part = advance(g, part, weightOf(g, cost))
  g.tat = tat + step
  g.last, g.newest = slot, id
  -- A running average over about 16 calls, for `expectedSlot`.
  g.mean = g.mean == 0 and cost or g.mean + (cost - g.mean) / 16
  tally(g, slot, 1)
  g.dirty = true
  if first then
    call('ZADD', base .. 'slots', slot, id)
    age(g, 'slots')
  end
  if slot - now > LATER_MICROS then
    call('ZREMRANGEBYSCORE', base .. 'later', '-inf', micros(now - 60000000))
    call('ZADD', base .. 'later', slot, id .. '@' .. micros(slot))
    age(g, 'later')
  end
  if g.longest > 0 then
    call('ZADD', base .. 'log', slot, id .. '@' .. micros(slot))
    age(g, 'log')
    trimLog(g, now)
  end
  if g.costReach > 0 then countCost(g, now, slot, id, cost) end
  countClassic(g, now, slot, cost)
end

-- Undoes a reservation whose start did not happen. Only the newest slot can be used again by somebody else; an older
-- one stays empty, since later slots have been promised already.
local function giveBack(g, slot, id, cost)
  -- A call may hold two slots for a while: one for its next attempt, and one that it has left to another call.
  local member = id .. '@' .. micros(slot)
  call('ZREM', base .. 'later', member)
  local recalled = call('ZREM', base .. 'recalled', member) == 1
  if g.longest > 0 then call('ZREM', base .. 'log', member) end
  changeCost(g, slot, id, 0)
  if not recalled then uncountClassic(g, slot, cost) end
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
  delayCost(g, slot, id, start)
end
