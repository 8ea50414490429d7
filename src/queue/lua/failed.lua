-- Lists the durable calls that failed, the latest first, or puts them back into the queue as far as there is room.
--
-- KEYS[1]  gate hash
-- ARGV[1]  now in µs, '' for the server's time
-- ARGV[2]  'list' or 'retry'
-- ARGV[3]  most calls to list or retry
-- Reply    list: { 'OK', now, { { id, reason, failed at in ms, data }… } } · retry: { 'OK', now, number } or { 'UNDECLARED' }
-- O(calls)
--- @include "gate"
--- @include "wake"
--- @lazy "dedupe"
--- @lazy "returns"
local now = clock(ARGV[1])
local g = load(now)
if not g then return { 'UNDECLARED' } end
local most = tonumber(ARGV[3])

if ARGV[2] == 'list' then
  local calls = {}
  for _, id in ipairs(call('ZREVRANGE', base .. 'failed', 0, most - 1)) do
    local job = call('HMGET', base .. id, 'failedReason', 'finishedOn', 'data')
    calls[#calls + 1] = { id, job[1] or '', job[2] or '0', job[3] or '' }
  end
  return { 'OK', micros(now), calls }
end

local room = math.min(most, g.capacity - occupied(g, now))
if room <= 0 then return { 'OK', micros(now), 0 } end
local retried = call('ZRANGE', base .. 'failed', 0, room - 1)
for _, id in ipairs(retried) do
  call('ZREM', base .. 'failed', id)
  -- It begins anew: neither its attempts nor its age speak against it.
  call('HDEL', base .. id, 'failedReason', 'finishedOn', 'processedOn', 'stc', 'am', 'ac', 'rd', 'x', 'm', 'r')
  -- It waits again, so others may join it; unless another call waits under that key by now.
  local key = call('HGET', base .. id, 'd')
  if key then dedupe().hold(id, key) end
  call('HSET', base .. id, 'o', returns().lastPlace(), 'timestamp', string.format('%.0f', math.floor(now / 1000)))
  call('DEL', base .. 'result:' .. id)
  call('LPUSH', base .. 'wait', id)
end
if #retried > 0 then
  persist(g)
  attend(g, now)
  save(g)
end
return { 'OK', micros(now), #retried }
