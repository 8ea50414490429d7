-- Calls that wait for a second time: their worker closed or died, or they are to be redelivered.
--- @include "delayed"
--- @lazy "dedupe"

-- A call that waits for a second time leaves the queue.
local function leave(g, job)
  if job[4] == '1' then g.again, g.dirty = g.again - 1, true end
end

-- Puts a call at the head of the queue, where BullMQ would put it too, but behind those that were admitted earlier and
-- have come back before it. `o` is the order of admission.
local function line(id)
  local wait, mine, older = base .. 'wait', call('HGET', base .. id, 'o') or '', {}
  while true do
    local head = call('LINDEX', wait, -1)
    if not head or (call('HGET', base .. head, 'o') or mine) >= mine then break end
    older[#older + 1] = call('RPOP', wait)
  end
  call('RPUSH', wait, id)
  for i = #older, 1, -1 do call('RPUSH', wait, older[i]) end
end

-- A call comes back from its worker to the queue. It had its place and gave it up when it first started; only one whose
-- slot is still to come has not, and keeps it. `unsent`: it is known that nothing of it was sent, although its slot is over.
local function comeBack(g, id, now, unsent)
  call('ZREM', base .. 'inflight', id)
  local slot = call('ZSCORE', base .. 'slots', id)
  if slot then call('ZREM', base .. 'slots', id) end
  local isToCome = slot and tonumber(slot) > now
  if isToCome or unsent then
    -- Others like it still join it, and its own bound still ends it.
    local key, own, deadline = unpack(call('HMGET', base .. id, 'd', 'm', 'x'))
    call('HDEL', base .. id, 'processedOn')
    if key then dedupe().hold(id, key) end
    if own and isToCome then call('ZADD', base .. 'deadlines', deadline, id) end
  end
  if isToCome then return end
  call('HSET', base .. id, 'r', '1')
  g.again = g.again + 1
  g.dirty = true
end

-- The place behind all others in the order of admission.
local function lastPlace() return string.format('%015.0f', call('INCR', base .. 'id')) end

-- Calls that are to be redelivered by now come to the end of the queue: from here on, that is their place in its order.
local function bringBack(now)
  local due = '(' .. micros(delayedScore(now + 1000))
  for _, id in ipairs(call('ZRANGEBYSCORE', base .. 'delayed', '-inf', due, 'LIMIT', 0, 1000)) do
    call('ZREM', base .. 'delayed', id)
    call('HSET', base .. id, 'o', lastPlace())
    call('LPUSH', base .. 'wait', id)
  end
end

return { leave = leave, line = line, comeBack = comeBack, lastPlace = lastPlace, bringBack = bringBack }
