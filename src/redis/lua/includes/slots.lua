-- Slots: when the next call may start, and who has taken which.

-- The theoretical arrival time. No credit is saved up while the gate is closed: reopening releases no burst.
local function arrival(g) return math.max(g.tat, g.closedUntil + g.tau) end

-- How far so many calls (or units of cost) move the schedule on, and what is left of the last µs: sums of whole numbers,
-- so that an interval such as 1/3 s neither drifts nor lets N + 1 calls into a window by a rounded µs.
local function advance(g, part, units)
  local rest = part + units * (g.cycle % g.limit)
  return units * math.floor(g.cycle / g.limit) + math.floor(rest / g.limit), rest % g.limit
end

-- How much later than a call of cost 1 it may start. GCRA with weights: a call waits until its cost fits into what a burst
-- may hold; one that exceeds all of it, until that is empty.
local function excessOf(g, cost)
  if not g.weighed then return 0 end
  return math.ceil((math.min(cost, g.burst) - 1) * g.cycle / g.limit)
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
      free = costs().room(g, window, cost)
    else
      local nth = call('ZRANGE', base .. 'log', -window.limit, -window.limit, 'WITHSCORES')
      free = nth[2] and tonumber(nth[2]) + window.cycle or 0
    end
    if why and free > slot then why.name = window.text end
    slot = math.max(slot, free)
  end
  for _, one in ipairs(g.classic) do
    local free = classic().slot(one, slot, cost)
    if why and free > slot then why.name = one.text end
    slot = math.max(slot, free)
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

--- @lazy "usage"

-- The second that runs is counted in the gate, so that a start costs no command.
local function tally(g, slot, starts)
  local second = math.floor(slot / 1000000)
  if second > g.second then
    if g.starts > 0 then usage().add(g, g.second, g.starts, usage().STARTED) end
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
  step, g.part = advance(g, part, g.weighed and cost or 1)
  g.tat = tat + step
  g.last, g.newest = slot, id
  -- A running average over about 16 calls, for `expectedSlot`.
  g.mean = g.mean == 0 and cost or g.mean + (cost - g.mean) / 16
  tally(g, slot, 1)
  g.dirty = true
  -- One that comes at once has come already, and occupies nothing.
  if first and slot > now then
    call('ZADD', base .. 'slots', slot, id)
    age(g, 'slots')
  end
  -- Slots further ahead than this are confirmed by their holders before they come (see gate/slot.ts), so that they can be
  -- taken away from them.
  local LATER_MICROS = 25000
  local isFar = slot - now > LATER_MICROS
  if isFar then
    call('ZREMRANGEBYSCORE', base .. 'later', '-inf', micros(now - 60000000))
    call('ZADD', base .. 'later', slot, id .. '@' .. micros(slot))
    age(g, 'later')
  end
  if g.longest > 0 then
    call('ZADD', base .. 'log', slot, id .. '@' .. micros(slot))
    age(g, 'log')
    trimLog(g, now)
  end
  if g.costReach > 0 then costs().count(g, now, slot, id, cost) end
  if #g.classic > 0 then classic().count(g, now, slot, isFar, cost) end
end
