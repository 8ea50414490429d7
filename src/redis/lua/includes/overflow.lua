-- Makes room for calls that find their bucket full, by dropping those that have waited longest.
--- @include "ranks"
--- @lazy "drop"

-- The oldest call of the lowest rank there is, but of none above `rank`, and none that waits for the second time; its rank;
-- and where in the list to go on looking. O(calls at the head of the queue that wait for the second time).
local function oldestOf(g, rank, position)
  local low = g.ranked > 0 and headOf(LOW)
  if low then return low, LOW, position end
  while rank <= NORMAL do
    local id = call('LINDEX', base .. 'wait', position)
    if not id then break end
    if call('HGET', base .. id, 'r') ~= '1' then return id, NORMAL, position end
    position = position - 1
  end
  return rank == HIGH and headOf(HIGH), HIGH, position
end

-- Drops up to `count` calls for others of that rank. Returns whom to tell, and how many of the same rank there were.
local function dropOldest(g, rank, count, outcome, keepMs)
  local dropped, same, position = {}, 0, -1
  while #dropped < count do
    local id, of
    id, of, position = oldestOf(g, rank, position)
    if not id then break end
    local job = call('HMGET', base .. id, 'name', 'c')
    if of == NORMAL then call('LREM', base .. 'wait', -1, id) else call('ZREM', base .. 'prioritized', id) end
    if of == rank then same = same + 1 end
    dropped[#dropped + 1] = drop().discard(id, job[1], job[2], outcome, keepMs)
  end
  return dropped, same
end

return { dropOldest = dropOldest }
