-- Priorities: BullMQ's `prioritized` set holds the high (1) and the low (2) calls, its `wait` list the normal ones. BullMQ
-- itself would take the list first; here, high comes before normal before low, first in, first out within each.

local LOW_SCORE = '8589934592' -- 2 * 2^32: BullMQ's score is priority * 2^32 + count
local HIGH, NORMAL, LOW = 1, 2, 3

-- The oldest call of one rank.
local function headOf(rank)
  if rank == NORMAL then return call('LINDEX', base .. 'wait', -1) end
  local from, to = '-inf', '(' .. LOW_SCORE
  if rank == LOW then from, to = LOW_SCORE, '+inf' end
  return call('ZRANGEBYSCORE', base .. 'prioritized', from, to, 'LIMIT', 0, 1)[1]
end

-- Takes it out of the queue.
local function pull(id, rank)
  if rank == NORMAL then call('RPOP', base .. 'wait') else call('ZREM', base .. 'prioritized', id) end
end

-- The call that is next, and its rank.
local function nextCall()
  local first = call('ZRANGE', base .. 'prioritized', 0, 0, 'WITHSCORES')
  if first[1] and tonumber(first[2]) < tonumber(LOW_SCORE) then return first[1], HIGH end
  local id = call('LINDEX', base .. 'wait', -1)
  if id then return id, NORMAL end
  return first[1], LOW
end
