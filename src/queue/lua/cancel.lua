-- Takes one waiting call out of the queue and frees its place.
--
-- KEYS[1]  gate hash
-- ARGV[1]  now in µs, '' for the server's time
-- ARGV[2]  id
-- ARGV[3]  ms for which the outcome of a durable call is kept
-- ARGV[4]  the outcome, JSON
-- Reply    { 'CANCELLED', now, { id, client, waiting processes… } } · { 'TAKEN', now }: a worker has it ·
--          { 'UNKNOWN', now }: it has ended, or never was
-- O(waiting)
--- @include "gate"
--- @lazy "drop"
--- @lazy "returns"
local now = clock(ARGV[1])
local id = ARGV[2]
local removed = call('LREM', base .. 'wait', -1, id) + call('ZREM', base .. 'prioritized', id)
  + call('ZREM', base .. 'delayed', id)
if removed > 0 then
  local job = call('HMGET', base .. id, 'name', 'c', 'x', 'r')
  local g = load(now)
  if g then
    returns().leave(g, job)
    if waitingCalls(g) == 0 then expireWhenIdle(g, now) end
    save(g)
  end
  return { 'CANCELLED', micros(now), drop().discard(id, job[1], job[2], ARGV[4], tonumber(ARGV[3])) }
end
if call('EXISTS', base .. id) == 1 and not call('ZSCORE', base .. 'failed', id) then return { 'TAKEN', micros(now) } end
return { 'UNKNOWN', micros(now) }
