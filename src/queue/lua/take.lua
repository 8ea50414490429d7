-- Takes the oldest calls whose slots are near, at most ARGV[4] of them, and reserves their slots in the same step: a
-- call is always either waiting in the queue or holds a slot that is about to come, so the capacity is exact, and no slot
-- lies further ahead than the horizon, so a pause, a new rate or a cancellation is obeyed by whatever still waits.
--
-- KEYS[1]  gate hash
-- ARGV[1]  now in µs, '' for the server's time
-- ARGV[2]  channel of the worker
-- ARGV[3]  horizon in µs: how far ahead a slot may lie
-- ARGV[4]  most calls to take; 0 passes the turn on
-- ARGV[5]  lock token
-- ARGV[6]  lock duration in ms
-- ARGV[7]  ms for which the result of an expired durable call is kept
-- ARGV[8]  what to store as the result of a durable call that waited too long
-- ARGV[9]  latest time in µs at which this may still be done, or '': when the server has stood still, producers come first,
--          who have reported calls as failed and want to take them out again
-- Reply    { state, now, look again at (µs, 0 = when woken), { calls… }, { dropped… }, lateness in µs, moved in all in µs, concurrency }
--          or { 'LATE', now } or { 'UNDECLARED' }
--          state: 'more' (ask again) · 'wait' · 'empty' · 'full' (concurrency)
--          call: { id, slot, cost, 'permit', client }
--             or { id, slot, cost, 'request', BullMQ's job hash as a flat list }
--          dropped: { why ('gone' or 'expired'), id, client, waiting processes… }
-- O(rules · log log-size) per call
--- @include "gate"
--- @include "wake"
--- @include "gone"
--- @lazy "drop"
--- @lazy "dedupe"
--- @lazy "returns"
--- @include "ranks"
--- @include "quiet"
--- @bullmq "moveToActive"
local now = clock(ARGV[1])
if ARGV[9] and ARGV[9] ~= '' and now > tonumber(ARGV[9]) then return { 'LATE', micros(now) } end
local g = load(now)
if not g then return { 'UNDECLARED' } end
local worker, horizon, most = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local TENURE_MICROS = 1000000
local SCANS = 200

local free = math.huge
if g.concurrency > 0 then
  call('ZREMRANGEBYSCORE', base .. 'inflight', '-inf', now)
  free = g.concurrency - call('ZCARD', base .. 'inflight')
end
call('ZREMRANGEBYSCORE', base .. 'slots', '-inf', now)
-- BullMQ would do it, but not say so.
if g.again > 0 then returns().bringBack(now) end

-- For BullMQ, the same for all calls of this run.
local keys, args

-- nil when BullMQ does not hand out the call: its queue is paused, or full, by hand (a dashboard).
local function take(id, rank, kind, client, comesBack)
  if kind == 'permit' then
    pull(id, rank)
    call('DEL', base .. id)
    return client
  end
  -- BullMQ hands out the head of its list.
  if rank ~= NORMAL then
    pull(id, rank)
    call('RPUSH', base .. 'wait', id)
    call('HSET', base .. id, 'priority', 0)
  end
  keys = keys or {
    base .. 'wait', base .. 'active', base .. 'prioritized', base .. 'events', base .. 'stalled', base .. 'limiter',
    base .. 'delayed', base .. 'paused', base .. 'meta', base .. 'pc', base .. 'marker',
  }
  args = args or { base, math.floor(now / 1000), cmsgpack.pack({ token = ARGV[5], lockDuration = tonumber(ARGV[6]) }) }
  local job = moveToActive(keys, args)
  if job[2] ~= id then return nil end
  if comesBack then call('HDEL', base .. id, 'r') end
  return job[1]
end

-- Whether some call waits in the set is known once for all: nobody adds one meanwhile.
local anyRanked = g.ranked > 0 and call('EXISTS', base .. 'prioritized') == 1
if g.ranked > 0 and not anyRanked then g.ranked, g.dirty = 0, true end
local function first()
  if anyRanked then return nextCall() end
  return call('LINDEX', base .. 'wait', -1), NORMAL
end

local calls, dropped, state, again = {}, {}, 'more', 0
for scan = 1, SCANS do
  if #calls >= most then break end
  local id, rank = first()
  if not id then
    state = 'empty'
    break
  end
  local job = call('HMGET', base .. id, 'name', 'c', 'x', 'r', 'w', 'd', 'm')
  local kind, client, deadline, cost = job[1], job[2] or '', job[3] or '', tonumber(job[5] or 1)
  if not kind then
    pull(id, rank)
  elseif deadline ~= '' and now > tonumber(deadline) and job[4] ~= '1' then
    pull(id, rank)
    returns().leave(g, job)
    dropped[#dropped + 1] = drop().expire(id, kind, client, ARGV[8], tonumber(ARGV[7]))
  elseif kind == 'permit' and isGone(g, client, now) then
    pull(id, rank)
    dropped[#dropped + 1] = drop().because('gone', drop().discard(id, kind, client, '', 0))
  elseif free <= 0 then
    state = 'full'
    break
  else
    local slot = nextSlot(g, now, cost)
    if slot - now > horizon then
      state, again = 'wait', slot - horizon
      -- A policy set for a time gives way to another one, which may let calls start earlier.
      if g.overrideUntil > now then again = math.min(again, g.overrideUntil) end
      break
    end
    local taken = take(id, rank, kind, client, job[4] == '1')
    if not taken then
      state = 'full'
      break
    end
    local isFirst = job[4] ~= '1'
    if not isFirst then returns().leave(g, job) end
    reserve(g, now, slot, id, isFirst, cost)
    if isFirst and kind == 'request' then g.firsts = g.firsts + 1 end
    if job[6] then dedupe().forget(id, job[6]) end
    if job[7] then call('ZREM', base .. 'deadlines', id) end
    calls[#calls + 1] = { id, slot, cost, kind, taken }
    if g.concurrency > 0 then
      call('ZADD', base .. 'inflight', now + tonumber(ARGV[6]) * 1000, id)
      free = free - 1
    end
  end
end

-- Until somebody wakes this worker.
local function rest()
  call('ZADD', base .. 'idle', now, worker)
  age(g, 'idle')
end

if most == 0 then
  -- The worker was woken but can carry nothing now; somebody else shall look.
  if g.turn == worker then giveTurn(g, '', now, 0) end
  local other = waitingCalls(g) > 0 and wakeIdle(g)
  if other then giveTurn(g, other, now, now + TURN_MICROS) end
elseif state == 'empty' or state == 'full' then
  if g.turn == worker then giveTurn(g, '', now, 0) end
  rest()
  if state == 'empty' then
    -- Nothing waits, so nothing waits again but what is to be redelivered, even where a waiting call was removed by other
    -- hands (a dashboard).
    if g.again ~= 0 then g.again, g.dirty = call('ZCARD', base .. 'delayed'), true end
  end
elseif state == 'wait' then
  -- One worker waits for the slot; the turn goes round, so that all of them share the work.
  if g.turn ~= worker and g.turnUntil <= now then giveTurn(g, worker, now, 0) end
  if g.turn == worker and now - g.turnSince > TENURE_MICROS then
    local _, bucket = names()
    local other = call('ZRANGE', base .. 'idle', 0, 0)[1]
    if other and other ~= worker then
      call('ZREM', base .. 'idle', other)
      if call('PUBLISH', other, bucket) > 0 or g.cluster == '1' then giveTurn(g, other, now, 0) end
    else
      g.turnSince = now
    end
  end
  if g.turn == worker or g.turnUntil <= now then giveTurn(g, g.turn, now, again + horizon + TURN_MICROS) end
  if g.turn ~= worker then
    rest()
    again = g.turnUntil
  end
else
  if g.turn ~= worker and g.turnUntil <= now then giveTurn(g, worker, now, 0) end
  if g.turn == worker then giveTurn(g, worker, now, now + TURN_MICROS) end
  -- More is due than this worker could carry: another one may help.
  if #calls > 0 and nextSlot(g, now) - now <= horizon and free > 0 and waitingCalls(g) > 0 then wakeIdle(g) end
end
save(g)
return { state, now, micros(again), calls, dropped, g.late, g.shifted, g.concurrency }
