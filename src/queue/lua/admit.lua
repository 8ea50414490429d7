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
-- ARGV[8]  '1' when this may be a repetition of an admission whose reply was lost
-- ARGV[9]  ms for which the result of a dropped durable call is kept
-- ARGV[10] what to store as the result of a call that is dropped to make room
-- ARGV[11] lease of the calling process in µs
-- ARGV[12…] pairs of id, data
-- Reply    { 'LATE', now } · { 'UNDECLARED' } · { 'BLOCKED', now, until, reason }
--          { 'FULL', now, depth, capacity, time of room }
--          { 'GRANTED', now, slot, lateness in µs, moved in all in µs, concurrency }
--          { 'ADDED', now, number added, expected start of the first, of the last, attended, depth, { dropped… } }
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

if ARGV[8] == '1' and (call('EXISTS', base .. ARGV[FIRST]) == 1 or call('EXISTS', base .. 'result:' .. ARGV[FIRST]) == 1) then
  return { 'ADDED', micros(now), count, micros(expectedSlot(g, now, call('LLEN', base .. 'wait'))), micros(now), 1, 0, {} }
end
if g.blockedUntil > now then return { 'BLOCKED', micros(now), micros(g.blockedUntil), g.blockReason or '' } end

local waiting = call('LLEN', base .. 'wait') + call('ZCARD', base .. 'prioritized')

local function mayFly()
  if g.concurrency == 0 then return true end
  call('ZREMRANGEBYSCORE', base .. 'inflight', '-inf', micros(now))
  return call('ZCARD', base .. 'inflight') < g.concurrency
end

-- An empty bucket needs no queue, and nobody is overtaken.
if kind == 'permit' and waiting == 0 and mayFly() then
  local slot = nextSlot(g, now)
  local ahead = call('ZCOUNT', base .. 'slots', '(' .. micros(now), '+inf')
  if slot - now <= tonumber(ARGV[6]) and ahead < g.capacity then
    if ahead == 0 then call('DEL', base .. 'slots') end
    reserve(g, slot, ARGV[FIRST], true)
    if g.concurrency > 0 then call('ZADD', base .. 'inflight', now + tonumber(ARGV[11]), ARGV[FIRST]) end
    save(g)
    expireWhenIdle(g, now)
    return { 'GRANTED', micros(now), micros(slot), g.late, micros(g.shifted), g.concurrency }
  end
end

local depth = occupied(g, now)
local room = g.capacity - depth

-- When the leak will have made room for `missing` calls.
local function timeOfRoom(missing)
  local first = call('ZRANGEBYSCORE', base .. 'slots', '(' .. micros(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  if first[2] and missing == 1 then return tonumber(first[2]) end
  return expectedSlot(g, now, missing - 1)
end

local dropped = {}
if count > room and g.overflow == 'drop-oldest' and count <= g.capacity then
  for _ = 1, waiting do
    if room >= count then break end
    local id = call('RPOP', base .. 'wait')
    if not id then break end
    local job = call('HMGET', base .. id, 'name', 'c', 'x', 'r')
    if not leave(g, job) then room = room + 1 end
    dropped[#dropped + 1] = discard(id, job[1], job[2], ARGV[10], tonumber(ARGV[9]))
  end
end
if count > room then
  if mode == 'all' or room <= 0 then
    return { 'FULL', micros(now), depth, g.capacity, micros(timeOfRoom(mode == 'all' and count - room or 1)) }
  end
  count = room
end

local ahead = call('LLEN', base .. 'wait')
if ahead == 0 then
  call('PERSIST', KEYS[1])
  call('PERSIST', base .. 'meta')
  call('PERSIST', base .. 'id')
end
local keys = {
  base .. 'wait', base .. 'paused', base .. 'meta', base .. 'id', base .. 'completed', base .. 'delayed',
  base .. 'active', base .. 'events', base .. 'marker',
}
local opts = cmsgpack.pack({ attempts = 1 })
local milliseconds = math.floor(now / 1000)
for i = 0, count - 1 do
  local id, data = ARGV[FIRST + 2 * i], ARGV[FIRST + 2 * i + 1]
  local added = addStandardJob(keys, { cmsgpack.pack({ base, id, kind, milliseconds }), data, opts })
  if added ~= id then error('spillway: BullMQ did not add the job: ' .. tostring(added)) end
  call('HSET', base .. id, 'c', kind == 'permit' and client or '', 'x', maxWait and micros(now + maxWait) or '')
end
if kind == 'permit' then call('ZADD', base .. 'leases', now + tonumber(ARGV[11]), client) end
local attended = attend(g, now)
save(g)
return {
  'ADDED', micros(now), count, micros(expectedSlot(g, now, ahead)), micros(expectedSlot(g, now, ahead + count - 1)),
  attended, g.capacity - room + count, dropped,
}
