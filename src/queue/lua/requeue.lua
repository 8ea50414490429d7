-- Puts a durable call that waits for a further attempt back at the head of the queue: its worker closes.
--
-- KEYS[1]  gate hash
-- ARGV[1]  now in µs, '' for the server's time
-- ARGV[2]  id
-- ARGV[3]  lock token
-- ARGV[4]  attempts made so far
-- ARGV[5]  those of them that count
-- ARGV[6]  '1' when nothing of it was ever sent
-- Reply    { 'OK', now } or { 'LOST', now, code }
-- O(calls that came back before), and O(active) for BullMQ's LREM
--- @include "gate"
--- @include "wake"
--- @lazy "returns"
--- @include "quiet"
--- @bullmq "moveJobFromActiveToWait"
local now = clock(ARGV[1])
local id = ARGV[2]
local code = moveJobFromActiveToWait({
  base .. 'active', base .. 'wait', base .. 'stalled', base .. 'paused', base .. 'meta', base .. 'limiter',
  base .. 'prioritized', base .. 'marker', base .. 'events',
}, { id, ARGV[3], base .. id })
if code < 0 then return { 'LOST', micros(now), code } end
if call('LREM', base .. 'wait', -1, id) == 0 then return { 'LOST', micros(now), -3 } end
call('HSET', base .. id, 'am', ARGV[4], 'ac', ARGV[5])
returns().line(id)
local g = load(now)
if g then
  returns().comeBack(g, id, now, ARGV[6] == '1')
  persist(g)
  attend(g, now)
  save(g)
end
return { 'OK', micros(now) }
