-- Puts a durable call whose attempts have all failed aside, to come back to the end of the queue later.
--
-- KEYS[1]  gate hash
-- ARGV[1]  now in µs, '' for the server's time
-- ARGV[2]  id
-- ARGV[3]  lock token
-- ARGV[4]  in how many ms
-- ARGV[5]  attempts made so far
-- ARGV[6]  redeliveries so far, this one included
-- Reply    { 'OK', now } · { 'LOST', now, code }: another worker has the call now (its lock was lost); nothing was changed
-- O(log redeliveries), and O(active) for BullMQ's LREM
--- @include "gate"
--- @include "waiting"
--- @include "vacated"
--- @include "reclaim"
--- @include "quiet"
--- @bullmq "moveToDelayed"
local now = clock(ARGV[1])
local id = ARGV[2]
local function putAside(token)
  return moveToDelayed({
    base .. 'marker', base .. 'active', base .. 'prioritized', base .. 'delayed', base .. id, base .. 'events',
    base .. 'meta', base .. 'stalled', base .. 'wait', base .. 'limiter', base .. 'pc',
  }, { base, math.floor(now / 1000), id, token, ARGV[4], '1', '', '0', '' })
end

local code = putAside(ARGV[3])
if code == -2 then
  -- What it has learned still counts: that all attempts failed.
  reclaim(id)
  code = putAside('0')
end
if code ~= 0 then return { 'LOST', micros(now), code } end
call('HSET', base .. id, 'am', ARGV[5], 'ac', '0', 'rd', ARGV[6])
call('HDEL', base .. id, 'stc')
call('ZREM', base .. 'slots', id)
local flew = call('ZREM', base .. 'inflight', id) > 0
local g = load(now)
if g then
  -- It had its place in the queue when it first came.
  call('HSET', base .. id, 'r', '1')
  g.again, g.dirty = g.again + 1, true
  persist(g)
  save(g)
end
if flew and anyWaits() then vacated(now) end
return { 'OK', micros(now) }
