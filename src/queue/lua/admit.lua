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
-- ARGV[12] quota of each producer, as quota.lua reads it, or ''
-- ARGV[13…] triples of id, data, options: '' or a JSON object of p (priority: 1 high, 2 low), w (cost), q (producer), x (longest
--          wait in µs, in place of ARGV[7]), d (key under which only one call may wait) and u ('join' or 'refuse' what it finds)
-- Reply    { 'LATE', now } · { 'UNDECLARED' } · { 'BLOCKED', now, until, reason } · { 'DUPLICATE', now, id that waits }
--          { 'QUOTA', now, when it fits in µs or '' for never, producer }
--          { 'FULL', now, depth, capacity, time of room in µs or '' for never }
--          { 'GRANTED', now, slot, lateness in µs, moved in all in µs, concurrency }
--          { 'ADDED', now, number added, expected start of the first, of the last, attended, depth, { dropped… },
--            { which of the calls were known, from 0… }, { under which id each of these is known… } }, where the
--            expected starts are those of the calls added
-- O(1) per call, O(log ranked) for one of high or low priority, and O(rules · log log-size) once
--- @include "gate"
--- @include "wake"
--- @lazy "dedupe"
--- @lazy "quota"
local now = clock(ARGV[1])
if ARGV[2] ~= '' and now > tonumber(ARGV[2]) then return { 'LATE', micros(now) } end
local g = load(now)
if not g then return { 'UNDECLARED' } end
local mode, kind, client, maxWait = ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[7])
local FIRST = 13
local count = (#ARGV - FIRST + 1) / 3
local function idOf(i) return ARGV[FIRST + 3 * i] end
local NONE, decoded = {}, {}
local function optionsOf(i)
  local text = ARGV[FIRST + 3 * i + 2]
  if text == '' then return NONE end
  decoded[i] = decoded[i] or cjson.decode(text)
  return decoded[i]
end

-- It waits, runs, or its result is kept. What is left of a failed call when its result has gone does not count.
local function isKnown(id)
  if call('EXISTS', base .. 'result:' .. id) == 1 then return true end
  return call('EXISTS', base .. id) == 1 and not call('ZSCORE', base .. 'failed', id)
end

-- By position, the id under which a call is known; and those that this very script will add.
local known, fresh, seen, held = {}, count, {}, {}
for i = 0, count - 1 do
  local id, key = idOf(i), optionsOf(i).d
  local holder = key and (held[key] or dedupe().holderOf(key))
  if ARGV[8] == '1' and (seen[id] or isKnown(id)) then
    known[i] = id
  elseif holder and holder ~= id then
    if optionsOf(i).u == 'refuse' then return { 'DUPLICATE', micros(now), holder } end
    known[i] = holder
  end
  if known[i] then
    fresh = fresh - 1
  elseif key then
    held[key] = id
  end
  seen[id] = true
end
local function knownOf(accepted)
  local places, ids = {}, {}
  for i = 0, accepted - 1 do
    if known[i] then
      places[#places + 1] = i
      ids[#ids + 1] = known[i]
    end
  end
  return places, ids
end
if fresh == 0 then
  local attended = 1
  if waitingCalls(g) > 0 then attended = attend(g, now) end
  save(g)
  local places, ids = knownOf(count)
  return { 'ADDED', micros(now), count, micros(now), micros(now), attended, occupied(g, now), {}, places, ids }
end
local function costOf(i) return optionsOf(i).w or 1 end
local function producerOf(i) return optionsOf(i).q or '' end
local function refuse(n) usage().note(g, now, n, usage().REFUSED) end
if g.blockedUntil > now then
  refuse(fresh)
  return { 'BLOCKED', micros(now), micros(g.blockedUntil), call('HGET', KEYS[1], 'blockReason') or '' }
end

local inLine, ranked = call('LLEN', base .. 'wait'), rankedCalls(g)
local waiting = inLine + ranked

local function mayFly()
  if g.concurrency == 0 then return true end
  call('ZREMRANGEBYSCORE', base .. 'inflight', '-inf', now)
  return call('ZCARD', base .. 'inflight') < g.concurrency
end

-- The reply with its grant was lost, and the slot is still to come.
local given = ARGV[8] == '1' and kind == 'permit' and call('ZSCORE', base .. 'slots', idOf(0))
if given and tonumber(given) > now then
  return { 'GRANTED', micros(now), micros(tonumber(given)), g.late, micros(g.shifted), g.concurrency }
end

local allowance = ARGV[12] ~= '' and quota().open(ARGV[12], now)
if allowance then
  local accepted = 0
  for i = 0, count - 1 do
    local fits, at = true, nil
    if not known[i] then fits, at = allowance.ask(producerOf(i), costOf(i)) end
    if not fits and (mode == 'all' or i == 0) then
      allowance.refuse(producerOf(i), costOf(i))
      refuse(fresh)
      return { 'QUOTA', micros(now), at < math.huge and micros(at) or '', producerOf(i) }
    end
    if not fits then break end
    accepted = i + 1
  end
  local before = fresh
  for i = accepted, count - 1 do
    if not known[i] then fresh = fresh - 1 end
  end
  if fresh < before then refuse(before - fresh) end
  count = accepted
end

-- An empty bucket needs no queue, and nobody is overtaken.
if kind == 'permit' and waiting == 0 and mayFly() then
  local slot = nextSlot(g, now, costOf(0))
  local noted = call('ZCARD', base .. 'slots')
  local coming = noted > 0 and call('ZCOUNT', base .. 'slots', '(' .. micros(now), '+inf') or 0
  if slot - now <= tonumber(ARGV[6]) and coming < g.capacity then
    if coming == 0 and noted > 0 then call('DEL', base .. 'slots') end
    reserve(g, now, slot, idOf(0), true, costOf(0))
    if allowance then allowance.count(producerOf(0), costOf(0)) end
    if g.concurrency > 0 then
      call('ZADD', base .. 'inflight', now + tonumber(ARGV[11]), idOf(0))
      age(g, 'inflight')
    end
    expireWhenIdle(g, now)
    save(g)
    return { 'GRANTED', now, slot, g.late, g.shifted, g.concurrency }
  end
end

-- From here on, calls wait. What only that needs comes here, so that a grant need not make it.
--- @include "expected"
--- @include "ranks"
--- @include "quiet"
--- @bullmq "addStandardJob"
--- @bullmq "addPrioritizedJob"
--- @lazy "overflow"
local depth = depthOf(g, now, waiting)
local room = g.capacity - depth
-- Those that wait for the second time, at the head of the queue, and have no place: not those to be redelivered later.
local again = g.again - redeliveries(g)

-- High before normal before low, whatever their order of arrival; among many calls, the lowest of them.
local RANKS = { [0] = NORMAL, [1] = HIGH, [2] = LOW }
local rank = HIGH
for i = 0, count - 1 do
  if not known[i] then rank = math.max(rank, RANKS[optionsOf(i).p or 0]) end
end
local high = ranked > 0 and call('ZCOUNT', base .. 'prioritized', '-inf', '(' .. LOW_SCORE) or 0
local ahead = ({ high, high + inLine, waiting })[rank]

-- When the leak will have made room for `missing` calls: those that hold a slot leave first, and those that wait for the
-- second time stand before the others.
local function timeOfRoom(missing)
  local leaving = call('ZRANGEBYSCORE', base .. 'slots', '(' .. micros(now), '+inf', 'WITHSCORES', 'LIMIT', 0, missing)
  if leaving[2 * missing] then return tonumber(leaving[2 * missing]) end
  return expectedSlot(g, now, again + missing - #leaving / 2 - 1)
end

local dropped = {}
-- Drops nothing in vain: not where that makes too little room.
local droppable = ({ waiting - again, waiting - again - high, ranked - high })[rank]
local needed = mode == 'fit' and 1 or fresh
if fresh > room and g.overflow == 'drop-oldest' and room + droppable >= needed then
  local same
  dropped, same = overflow().dropOldest(g, rank, math.min(fresh, g.capacity) - room, ARGV[10], tonumber(ARGV[9]))
  room, ahead = room + #dropped, ahead - same
end
if fresh > room then
  if mode == 'all' or (room <= 0 and not known[0]) then
    refuse(fresh)
    local together = mode == 'all' and fresh or 1
    local at = together <= g.capacity and micros(timeOfRoom(together - room)) or ''
    return { 'FULL', micros(now), depth, g.capacity, at }
  end
  -- Calls are accepted in order, up to the first that has no room.
  local accepted, before = 0, fresh
  fresh = 0
  while accepted < count and (known[accepted] or fresh < room) do
    if not known[accepted] then fresh = fresh + 1 end
    accepted = accepted + 1
  end
  refuse(before - fresh)
  count = accepted
end
if #dropped > 0 then refuse(#dropped) end

persist(g)
local keys = {
  base .. 'wait', base .. 'paused', base .. 'meta', base .. 'id', base .. 'completed', base .. 'delayed',
  base .. 'active', base .. 'events', base .. 'marker',
}
local once = cmsgpack.pack({ attempts = 1 })
local function addRanked(head, data, priority)
  if g.ranked == 0 then g.ranked, g.dirty = 1, true end
  return addPrioritizedJob({
    base .. 'marker', base .. 'meta', base .. 'id', base .. 'prioritized', base .. 'delayed', base .. 'completed',
    base .. 'active', base .. 'events', base .. 'pc',
  }, { head, data, cmsgpack.pack({ attempts = 1, priority = priority }) })
end
local milliseconds = math.floor(now / 1000)
-- BullMQ counts what is added. Unlike the time, that goes neither back nor stands still.
local order = tonumber(call('GET', base .. 'id') or 0)
local function dataOf(i) return ARGV[FIRST + 3 * i + 1] end
local function add(i)
  local id, options = idOf(i), optionsOf(i)
  if ARGV[8] == '1' and call('ZREM', base .. 'failed', id) == 1 then call('DEL', base .. id) end
  local head = cmsgpack.pack({ base, id, kind, milliseconds })
  local added
  if options.p then
    added = addRanked(head, dataOf(i), options.p)
  else
    added = addStandardJob(keys, { head, dataOf(i), once })
  end
  if allowance then allowance.count(producerOf(i), costOf(i)) end
  order = order + 1
  if added ~= id then error('spillway: BullMQ did not add the job: ' .. tostring(added)) end
  local longest = options.x or maxWait
  local fields = {
    'c', kind == 'permit' and client or '', 'x', longest and micros(now + longest) or '',
    'o', string.format('%015.0f', order),
  }
  if options.w then
    fields[#fields + 1], fields[#fields + 2] = 'w', options.w
  end
  if options.x then
    fields[#fields + 1], fields[#fields + 2] = 'm', options.x / 1000
    call('ZADD', base .. 'deadlines', micros(now + options.x), id)
  end
  if options.d then
    fields[#fields + 1], fields[#fields + 2] = 'd', options.d
    call('HSET', base .. 'dedupe', options.d, id)
  end
  call('HSET', base .. id, unpack(fields))
end
local firstCost, lastCost
for i = 0, count - 1 do
  if not known[i] then
    add(i)
    lastCost = optionsOf(i).w or 1
    firstCost = firstCost or lastCost
  end
end
if kind == 'permit' then call('ZADD', base .. 'leases', now + tonumber(ARGV[11]), client) end
local attended = attend(g, now)
save(g)
local places, ids = knownOf(count)
local firstAt = expectedSlot(g, now, ahead, firstCost)
local lastAt = fresh == 1 and firstAt or expectedSlot(g, now, ahead + fresh - 1, lastCost)
return {
  'ADDED', now, count, micros(firstAt), micros(lastAt), attended, g.capacity - room + fresh, dropped, places, ids,
}
