-- What calls weigh, for windows that count cost: a log of starts with running totals, so that the earliest time at which
-- one more fits is found by one look-up, however many calls the window holds.
--
-- `costs` holds one member for each start, `<start in µs, 16 digits>@<id>`, with the total of all costs up to and including
-- it as its score. `costSum` in the gate is the total of all, `costOut` that of the starts that were forgotten.

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

-- What a start has really cost, 0 for one that did not happen; counted where the start was, so that windows stay exact.
-- Returns by how much that is more. O(starts since then).
local function changeCost(g, start, id, cost)
  local member = costMember(start, id)
  local total = call('ZSCORE', base .. 'costs', member)
  if not total then return 0 end
  local before = call('ZREVRANGEBYSCORE', base .. 'costs', '(' .. total, '-inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  local more = cost - (tonumber(total) - tonumber(before or g.costOut))
  if more == 0 then return 0 end
  for _, later in ipairs(call('ZRANGEBYSCORE', base .. 'costs', '(' .. total, '+inf')) do
    call('ZINCRBY', base .. 'costs', more, later)
  end
  if cost == 0 then
    call('ZREM', base .. 'costs', member)
  else
    call('ZINCRBY', base .. 'costs', more, member)
  end
  g.costSum = g.costSum + more
  g.dirty = true
  return more
end
