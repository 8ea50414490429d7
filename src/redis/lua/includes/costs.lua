-- What calls weigh, for windows that count cost: a log of starts with running totals, so that the earliest time at which
-- one more fits is found by one look-up, however many calls the window holds.
--
-- `costs` holds one member for each start, `<start in µs, 16 digits>@<id>`, with the total of all costs up to and including
-- it as its score. `costSum` in the gate is the total of all, `costOut` that of the starts that were forgotten: where they
-- are the same, there is none.

local function costMember(start, id) return string.format('%016.0f@%s', start, id) end
local function costTime(member) return tonumber(string.sub(member, 1, 16)) end

-- The time at which a window has room for `cost`. A call that weighs more than all of it waits until it is empty.
-- O(log starts).
local function costRoom(g, window, cost)
  local over = g.costSum + math.min(cost, window.limit) - window.limit
  if over <= g.costOut then return 0 end
  local leaves = call('ZRANGEBYSCORE', base .. 'costs', micros(over), '+inf', 'LIMIT', 0, 1)[1]
  return leaves and costTime(leaves) + window.cycle or 0
end

-- Each start forgets two that no window sees any more, so the log stays as long as the longest window needs.
local function countCost(g, now, start, id, cost)
  for _ = 1, 2 do
    local oldest = call('ZRANGE', base .. 'costs', 0, 0, 'WITHSCORES')
    if not oldest[1] or costTime(oldest[1]) >= now - g.costReach then break end
    call('ZREM', base .. 'costs', oldest[1])
    g.costOut = tonumber(oldest[2])
  end
  g.costSum = g.costSum + cost
  call('ZADD', base .. 'costs', micros(g.costSum), costMember(start, id))
  age(g, 'costs')
end

-- All starts behind a total weigh so much more in all. O(these starts).
local function moveTotals(g, from, more)
  for _, later in ipairs(call('ZRANGEBYSCORE', base .. 'costs', '(' .. from, '+inf')) do
    call('ZINCRBY', base .. 'costs', more, later)
  end
  g.costSum = g.costSum + more
  g.dirty = true
end

-- The total of all starts before the one with this total.
local function totalBefore(g, total)
  local before = call('ZREVRANGEBYSCORE', base .. 'costs', '(' .. total, '-inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  return tonumber(before or g.costOut)
end

-- A start that came late, and is counted when it came. For as long as it counts, whoever knows its slot still finds it.
local function movedKey(slot, id) return base .. 'moved:' .. costMember(slot, id) end

-- What a start has really cost, 0 for one that did not happen; counted where the start was, so that windows stay exact.
-- Returns by how much that is more, nil when nothing is changed.
-- O(starts since then).
local function changeCost(g, slot, id, cost)
  if g.costSum == g.costOut then return end
  local member = costMember(slot, id)
  local total = call('ZSCORE', base .. 'costs', member)
  if not total then
    member = call('GET', movedKey(slot, id))
    total = member and call('ZSCORE', base .. 'costs', member)
    if not total then return end
  end
  local more = cost - (tonumber(total) - totalBefore(g, total))
  if more == 0 then return end
  moveTotals(g, total, more)
  if cost == 0 then
    call('ZREM', base .. 'costs', member)
  else
    call('ZINCRBY', base .. 'costs', more, member)
  end
  return more
end

-- A start came later than its slot said, and counts from then on. O(starts since its slot).
local function delayCost(g, slot, id, start)
  if g.costSum == g.costOut or start <= slot then return end
  local member = costMember(slot, id)
  local total = call('ZSCORE', base .. 'costs', member)
  if not total then return end
  local cost = tonumber(total) - totalBefore(g, total)
  local place = tonumber(total)
  for _, later in ipairs(call('ZRANGEBYSCORE', base .. 'costs', '(' .. total, '+inf')) do
    if costTime(later) > start then break end
    place = tonumber(call('ZINCRBY', base .. 'costs', -cost, later)) + cost
  end
  call('ZREM', base .. 'costs', member)
  call('ZADD', base .. 'costs', micros(place), costMember(start, id))
  call('SET', movedKey(slot, id), costMember(start, id), 'PX', math.ceil((start - slot + g.costReach) / 1000) + 1)
end

-- The clock was set back by so much. O(starts).
local function rewindCosts(by)
  local entries = call('ZRANGE', base .. 'costs', 0, -1, 'WITHSCORES')
  call('DEL', base .. 'costs')
  for i = 1, #entries, 2 do
    local member = entries[i]
    call('ZADD', base .. 'costs', entries[i + 1], costMember(costTime(member) - by, string.sub(member, 18)))
  end
end

return { room = costRoom, count = countCost, change = changeCost, delay = delayCost, rewind = rewindCosts }
