-- Admits calls to a bucket: grants a permit at once when nothing waits, else appends to the bounded FIFO.
--
-- KEYS[1]  gate hash
-- ARGV[1]  now in µs, '' for the server's time
-- ARGV[2]  latest time in µs at which this may still be done, or '': a command that was stuck on its way must not add
--          what its caller has reported as failed
-- ARGV[3]  'all' or 'fit': what to do when not all calls fit
-- ARGV[4]  'permit' or 'request'
-- ARGV[5]  channel of the calling process
-- ARGV[6]  how far ahead a slot may be granted at once, in µs
-- ARGV[7]  longest wait in µs, or ''
-- ARGV[8]  '1' to look whether calls are known already: ids are the callers' own, or this may be the repetition of an
--          admission whose reply was lost. A known call is accepted, and nothing is added for it.
-- ARGV[9]  ms for which the result of a dropped durable call is kept
-- ARGV[10] what to store as the result of a call that is dropped to make room
-- ARGV[11] lease of the calling process in µs
-- ARGV[12…] pairs of id, data
-- Reply    { 'LATE', now } · { 'UNDECLARED' } · { 'BLOCKED', now, until, reason }
--          { 'FULL', now, depth, capacity, time of room }
--          { 'GRANTED', now, slot, lateness in µs, moved in all in µs, concurrency }
--          { 'ADDED', now, number added, expected start of the first, of the last, attended, depth, { dropped… },
--            { which of the calls were known, from 0… } }, where the expected starts are those of the calls added
-- O(1) per call, and O(rules · log log-size) once
--- @include "gate"
--- @include "wake"
--- @include "drop"
--- @bullmq "addStandardJob"
local now = clock(ARGV[1])
if ARGV[2] ~= '' and now > tonumber(ARGV[2]) then return { 'LATE', micros(now) } end
local g = load(now)
if not g then return { 'UNDECLARED' } end
local mode, kind, client, maxWait = ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[7])
local FIRST = 12
local count = (#ARGV - FIRST + 1) / 2

-- It waits, runs, or its result is kept. What is left of a failed call when its result has gone does not count.
local function isKnown(id)
  if call('EXISTS', base .. 'result:' .. id) == 1 then return true end
  return call('EXISTS', base .. id) == 1 and not call('ZSCORE', base .. 'failed', id)
end

local known, fresh = {}, count
if ARGV[8] == '1' then
  local seen = {}
  for i = 0, count - 1 do
    local id = ARGV[FIRST + 2 * i]
    if seen[id] or isKnown(id) then
      known[i] = true
      fresh = fresh - 1
    end
    seen[id] = true
  end
end
local function knownOf(accepted)
  local list = {}
  for i = 0, accepted - 1 do
    if known[i] then list[#list + 1] = i end
  end
  return list
end
if fresh == 0 then
  local attended = 1
  if call('LLEN', base .. 'wait') > 0 then attended = attend(g, now) end
  save(g)
  return { 'ADDED', micros(now), count, micros(now), micros(now), attended, occupied(g, now), {}, knownOf(count) }
end
if g.blockedUntil > now then return { 'BLOCKED', micros(now), micros(g.blockedUntil), g.blockReason or '' } end

local ahead = call('LLEN', base .. 'wait')
local waiting = ahead + call('ZCARD', base .. 'prioritized')

local function mayFly()
  if g.concurrency == 0 then return true end
  call('ZREMRANGEBYSCORE', base .. 'inflight', '-inf', micros(now))
  return call('ZCARD', base .. 'inflight') < g.concurrency
end

-- The reply with its grant was lost, and the slot is still to come.
local given = ARGV[8] == '1' and kind == 'permit' and call('ZSCORE', base .. 'slots', ARGV[FIRST])
if given and tonumber(given) > now then
  return { 'GRANTED', micros(now), micros(tonumber(given)), g.late, micros(g.shifted), g.concurrency }
end

-- An empty bucket needs no queue, and nobody is overtaken.
if kind == 'permit' and waiting == 0 and mayFly() then
  local slot = nextSlot(g, now)
  local coming = call('ZCOUNT', base .. 'slots', '(' .. micros(now), '+inf')
  if slot - now <= tonumber(ARGV[6]) and coming < g.capacity then
    if coming == 0 then call('DEL', base .. 'slots') end
    reserve(g, now, slot, ARGV[FIRST], true)
    if g.concurrency > 0 then call('ZADD', base .. 'inflight', now + tonumber(ARGV[11]), ARGV[FIRST]) end
    expireWhenIdle(g, now)
    save(g)
    return { 'GRANTED', micros(now), micros(slot), g.late, micros(g.shifted), g.concurrency }
  end
end

local depth = depthOf(g, now, waiting)
local room = g.capacity - depth

-- When the leak will have made room for `missing` calls: those that hold a slot leave first, and those that wait for the
-- second time stand at the head of the queue, but have no place to leave.
local function timeOfRoom(missing)
  local leaving = call('ZRANGEBYSCORE', base .. 'slots', '(' .. micros(now), '+inf', 'WITHSCORES', 'LIMIT', 0, missing)
  if leaving[2 * missing] then return tonumber(leaving[2 * missing]) end
  return expectedSlot(g, now, g.again + missing - #leaving / 2 - 1)
end

local dropped = {}
-- Drops nothing in vain: neither where that makes too little room, nor what waits for the second time and has no place.
local droppable = ahead - g.again
local needed = mode == 'fit' and 1 or fresh
if fresh > room and g.overflow == 'drop-oldest' and room + droppable >= needed then
  local position = -1
  while room < math.min(fresh, g.capacity) do
    local id = call('LINDEX', base .. 'wait', position)
    if not id then break end
    local job = call('HMGET', base .. id, 'name', 'c', 'x', 'r')
    if job[4] == '1' then
      position = position - 1
    else
      call('LREM', base .. 'wait', -1, id)
      room = room + 1
      dropped[#dropped + 1] = discard(id, job[1], job[2], ARGV[10], tonumber(ARGV[9]))
    end
  end
end
if fresh > room then
  if mode == 'all' or (room <= 0 and not known[0]) then
    return { 'FULL', micros(now), depth, g.capacity, micros(timeOfRoom((mode == 'all' and fresh or 1) - room)) }
  end
  -- Calls are accepted in order, up to the first that has no room.
  local accepted = 0
  fresh = 0
  while accepted < count and (known[accepted] or fresh < room) do
    if not known[accepted] then fresh = fresh + 1 end
    accepted = accepted + 1
  end
  count = accepted
end

ahead = ahead - #dropped
persist(g)
local keys = {
  base .. 'wait', base .. 'paused', base .. 'meta', base .. 'id', base .. 'completed', base .. 'delayed',
  base .. 'active', base .. 'events', base .. 'marker',
}
local opts = cmsgpack.pack({ attempts = 1 })
local milliseconds = math.floor(now / 1000)
-- BullMQ counts what is added. Unlike the time, that goes neither back nor stands still.
local order = tonumber(call('GET', base .. 'id') or 0)
local function add(i)
  local id, data = ARGV[FIRST + 2 * i], ARGV[FIRST + 2 * i + 1]
  if ARGV[8] == '1' and call('ZREM', base .. 'failed', id) == 1 then call('DEL', base .. id) end
  local added = addStandardJob(keys, { cmsgpack.pack({ base, id, kind, milliseconds }), data, opts })
  order = order + 1
  if added ~= id then error('spillway: BullMQ did not add the job: ' .. tostring(added)) end
  call('HSET', base .. id, 'c', kind == 'permit' and client or '', 'x', maxWait and micros(now + maxWait) or '',
    'o', string.format('%015.0f', order))
end
for i = 0, count - 1 do
  if not known[i] then add(i) end
end
if kind == 'permit' then call('ZADD', base .. 'leases', now + tonumber(ARGV[11]), client) end
local attended = attend(g, now)
save(g)
return {
  'ADDED', micros(now), count, micros(expectedSlot(g, now, ahead)), micros(expectedSlot(g, now, ahead + fresh - 1)),
  attended, g.capacity - room + fresh, dropped, knownOf(count),
}
