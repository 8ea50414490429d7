-- Puts the calls of dead workers back at the head of the queue, and those to be redelivered now at its end; drops what
-- has waited too long, and makes sure that somebody looks at a bucket with work. Run by every worker now and then; BullMQ's
-- `stalled-check` key lets one put calls back.
--
-- KEYS[1]  gate hash
-- ARGV[1]  now in µs, '' for the server's time
-- ARGV[2]  interval of the check in ms
-- ARGV[3]  ms for which the result of an expired durable call is kept
-- ARGV[4]  what to store as the result of a durable call that waited too long
-- Reply    { 'OK', now, { ids put back… }, { dropped… }, waiting, active or to be redelivered } or { 'UNDECLARED' }
--          dropped: { why ('gone' or 'expired'), id, client, waiting processes… }
-- O(active + dropped + redelivered), and O(waiting) for each dropped call that had a bound of its own
--- @include "gate"
--- @include "wake"
--- @include "gone"
--- @lazy "drop"
--- @lazy "returns"
--- @include "ranks"
--- @include "quiet"
--- @bullmq "moveStalledJobsToWait"
local now = clock(ARGV[1])
local g = load(now)
if not g then return { 'UNDECLARED' } end

local dropped = {}
for _, rank in ipairs({ HIGH, NORMAL, LOW }) do
  for _ = 1, 200 do
    local id = headOf(rank)
    local job = id and call('HMGET', base .. id, 'name', 'c', 'x', 'r')
    -- One that waits for a second time may have been sent; waiting is not what ends it.
    local expired = job and tonumber(job[3] or '') and tonumber(job[3]) < now and job[4] ~= '1'
    local gone = job and job[1] == 'permit' and isGone(g, job[2], now)
    if not expired and not gone then break end
    pull(id, rank)
    returns().leave(g, job)
    if expired then
      dropped[#dropped + 1] = drop().expire(id, job[1], job[2], ARGV[4], tonumber(ARGV[3]))
    else
      dropped[#dropped + 1] = drop().because('gone', drop().discard(id, job[1], job[2], '', 0))
    end
  end
end

-- Calls with a bound of their own may wait too long behind others.
for _, id in ipairs(call('ZRANGEBYSCORE', base .. 'deadlines', '-inf', '(' .. micros(now), 'LIMIT', 0, 200)) do
  call('ZREM', base .. 'deadlines', id)
  local job = call('HMGET', base .. id, 'name', 'c')
  if job[1] then
    if call('ZREM', base .. 'prioritized', id) == 0 then call('LREM', base .. 'wait', -1, id) end
    dropped[#dropped + 1] = drop().expire(id, job[1], job[2], ARGV[4], tonumber(ARGV[3]))
  end
end

local recovered = moveStalledJobsToWait({
  base .. 'stalled', base .. 'wait', base .. 'active', base .. 'stalled-check', base .. 'meta', base .. 'paused',
  base .. 'marker', base .. 'events', base .. 'repeat',
}, { 1000000, base, math.floor(now / 1000), ARGV[2] })

-- BullMQ puts them back in any order; FIFO wants the oldest first. The newest is put back first: each takes one step.
if #recovered > 0 then call('RPOP', base .. 'wait', #recovered) end
local order = {}
for _, id in ipairs(recovered) do order[id] = call('HGET', base .. id, 'o') or '' end
table.sort(recovered, function(a, b) return order[a] > order[b] end)
for _, id in ipairs(recovered) do
  returns().line(id)
  returns().comeBack(g, id, now)
end
call('ZREMRANGEBYSCORE', base .. 'leases', '-inf', micros(now))

returns().bringBack(now)

-- Should the gate have forgotten (its keys were deleted by hand), it is reminded here.
g.ranked = call('EXISTS', base .. 'prioritized')
g.dirty = true
local waiting = waitingCalls(g)
if waiting > 0 then
  persist(g)
  attend(g, now)
else
  expireWhenIdle(g, now)
  age(g, 'stalled')
end
save(g)
return {
  'OK', micros(now), recovered, dropped, waiting, call('LLEN', base .. 'active') + call('ZCARD', base .. 'delayed'),
}
