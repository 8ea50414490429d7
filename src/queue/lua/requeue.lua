-- Puts a durable call that waits for a further attempt back at the head of the queue: its worker closes.
--
-- KEYS[1]  gate hash
-- ARGV[1]  now in µs, '' for the server's time
-- ARGV[2]  id
-- ARGV[3]  lock token
-- ARGV[4]  attempts made so far
-- Reply    { 'OK', now } or { 'LOST', now, code }
-- O(calls that came back before), and O(active) for BullMQ's LREM
--- @include "gate"
--- @include "wake"
--- @include "drop"
--- @bullmq "moveJobFromActiveToWait"
local now = clock(ARGV[1])
local id = ARGV[2]
local code = moveJobFromActiveToWait({
  base .. 'active', base .. 'wait', base .. 'stalled', base .. 'paused', base .. 'meta', base .. 'limiter',
  base .. 'prioritized', base .. 'marker', base .. 'events',
}, { id, ARGV[3], base .. id })
if code < 0 then return { 'LOST', micros(now), code } end
call('HSET', base .. id, 'am', ARGV[4])
-- BullMQ puts it at the very head; calls that were admitted earlier and came back before it stay ahead.
local wait, mine, older = base .. 'wait', call('HGET', base .. id, 'o') or '', {}
call('RPOP', wait)
while true do
  local head = call('LINDEX', wait, -1)
  if not head or (call('HGET', base .. head, 'o') or mine) >= mine then break end
  older[#older + 1] = call('RPOP', wait)
end
call('RPUSH', wait, id)
for i = #older, 1, -1 do call('RPUSH', wait, older[i]) end
local g = load(now)
if g then
  comeBack(g, id, now)
  persist()
  attend(g, now)
  save(g)
end
return { 'OK', micros(now) }
