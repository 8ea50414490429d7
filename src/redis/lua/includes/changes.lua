-- What becomes of a gate whose policy, or whose server's clock, has changed.
--- @include "delayed"

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

-- The server's clock was set back, or another server with another clock has taken over. Everything that was `by` ahead
-- of the old clock is as far ahead of the new one: the gate neither stays closed until the old time comes again nor
-- lets anything through that was not due. (A clock that is set forward cannot be told from time that has passed.)
local function rewind(g, by)
  classic().shift(g, by)
  local fields = { 'changed', micros(g.now), 'undo', '', 'second', 0, 'starts', 0 }
  for _, name in ipairs({
    'tat', 'last', 'ruledFrom', 'pausedUntil', 'blockedUntil', 'overrideUntil', 'turnUntil', 'turnSince', 'slowAt', 'learnedUntil',
  }) do
    if g[name] > 0 and g[name] < FOREVER then
      fields[#fields + 1] = name
      fields[#fields + 1] = micros(math.max(1, g[name] - by))
    end
  end
  call('HSET', KEYS[1], unpack(fields))
  local function shiftAll(name, ahead)
    local entries = call('ZRANGE', base .. name, 0, -1, 'WITHSCORES')
    for i = 1, #entries, 2 do call('ZADD', base .. name, micros(tonumber(entries[i + 1]) - ahead), entries[i]) end
  end
  for _, name in ipairs({ 'log', 'slots', 'later', 'recalled', 'inflight', 'leases', 'deadlines' }) do shiftAll(name, by) end
  shiftAll('delayed', delayedScore(by))
  costs().rewind(by)
end

-- Slots nearer than this are never taken away (see gate/line.ts).
local NEAR_MICROS = 75000

-- Slots that were reserved far ahead (for further attempts) under a pause or rate that no longer holds must not keep
-- the gate closed: whoever holds one is refused when he confirms it, and reserves anew.
local function recall(g)
  local near = g.now + NEAR_MICROS
  call('ZREMRANGEBYSCORE', base .. 'recalled', '-inf', micros(g.now - 60000000))
  -- The only one has been given back.
  if g.last <= near then return classic().recall(g, near) end
  local ids = call('ZRANGEBYSCORE', base .. 'later', '(' .. micros(near), '+inf', 'WITHSCORES')
  for i = 1, #ids, 2 do
    -- Not the slot in the name: that may be of a clock that has been set back since.
    local id, slot = string.match(ids[i], '^(.*)@'), tonumber(ids[i + 1])
    call('ZREM', base .. 'log', ids[i])
    call('ZREM', base .. 'later', ids[i])
    call('ZADD', base .. 'recalled', ids[i + 1], ids[i])
    local less = costs().change(g, slot, id, 0)
    classic().uncount(g, slot, less and -less or 1)
  end
  classic().recall(g, near)
  if #ids > 0 then age(g, 'recalled') end
  g.tat, g.last, g.part, g.newest, g.undo = near + (g.tat - g.last), near, 0, '', ''
  g.dirty = true
end

-- Carries the schedule over to another rate. The debt is kept in calls (or cost), and the new spacing counts from the last
-- slot: a schedule that reached far ahead (1/h) does not delay the new one, and used credit does not come back. Where cost
-- is counted in place of calls, or calls in place of cost, the debt is kept in time.
local function reschedule(g, before)
  if before.ruled ~= g.ruled then g.ruledFrom, g.dirty = g.last, true end
  if before.cycle == g.cycle and before.limit == g.limit then return end
  recall(g)
  if before.weighed == g.weighed then g.tat = g.last + math.ceil((g.tat - g.last) / before.spacing * g.spacing) end
  g.part, g.newest, g.undo = 0, '', ''
  g.dirty = true
end

return {
  FOREVER = FOREVER, writePolicy = writePolicy, endOverride = endOverride, rewind = rewind, recall = recall,
  reschedule = reschedule,
}
