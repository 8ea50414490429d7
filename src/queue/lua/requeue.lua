-- Puts a durable call that waits for a further attempt back at the head of the queue: its worker closes.
--
-- KEYS[1]  gate hash
-- ARGV[1]  now in µs, '' for the server's time
-- ARGV[2]  id
-- ARGV[3]  lock token
-- ARGV[4]  attempts made so far
-- Reply    { 'OK', now } or { 'LOST', now, code }
-- O(1), and O(active) for BullMQ's LREM
--- @include "gate"
--- @include "wake"
--- @bullmq "moveJobFromActiveToWait"
local now = clock(ARGV[1])
local id = ARGV[2]
local code = moveJobFromActiveToWait({
  base .. 'active', base .. 'wait', base .. 'stalled', base .. 'paused', base .. 'meta', base .. 'limiter',
  base .. 'prioritized', base .. 'marker', base .. 'events',
}, { id, ARGV[3], base .. id })
if code < 0 then return { 'LOST', micros(now), code } end
call('HSET', base .. id, 'am', ARGV[4], 'r', '1')
call('ZREM', base .. 'inflight', id)
local g = load(now)
if g then
  g.again = g.again + 1
  g.dirty = true
  attend(g, now)
  save(g)
end
return { 'OK', micros(now) }
