-- Ends a durable call: moves it out of BullMQ's active list, keeps its result, and says who waits for it.
--
-- KEYS[1]  gate hash
-- ARGV[1]  now in µs, '' for the server's time
-- ARGV[2]  id
-- ARGV[3]  lock token
-- ARGV[4]  'completed' or 'failed'
-- ARGV[5]  reason of the failure, or ''
-- ARGV[6]  failed calls to keep
-- ARGV[7]  ms for which the result is kept
-- ARGV[8]  result without its body, JSON
-- ARGV[9]  body of the response, or ''
-- Reply    { 'OK', now, { processes that wait for the result… } }
--          { 'LOST', now, code }: another worker has the call now (its lock was lost); nothing was changed
-- O(1), and O(active) for BullMQ's LREM
--- @include "bucket"
--- @include "quiet"
--- @include "reclaim"
--- @include "waiters"
--- @include "waiting"
--- @bullmq "moveToFinished"
local now = clock(ARGV[1])
local id, target = ARGV[2], ARGV[4]

local function finish(token)
  return moveToFinished({
    base .. 'wait', base .. 'active', base .. 'prioritized', base .. 'events', base .. 'stalled', base .. 'limiter',
    base .. 'delayed', base .. 'paused', base .. 'meta', base .. 'pc', base .. target, base .. id,
    base .. 'metrics:' .. target, base .. 'marker',
  }, {
    id, math.floor(now / 1000), target == 'failed' and 'failedReason' or 'returnvalue',
    target == 'failed' and ARGV[5] or 'null', target, '0', base,
    cmsgpack.pack({
      token = token,
      attempts = 1,
      maxMetricsSize = '',
      keepJobs = { count = target == 'failed' and tonumber(ARGV[6]) or 0 },
    }),
  })
end

local code = finish(ARGV[3])
if code == -2 then
  -- Its answer still counts: it must not be sent again.
  reclaim(id)
  code = finish('0')
end
if type(code) == 'number' and code < 0 then return { 'LOST', micros(now), code } end

call('HSET', base .. 'result:' .. id, 'm', ARGV[8], 'b', ARGV[9])
call('PEXPIRE', base .. 'result:' .. id, ARGV[7])
local makesRoom = call('ZREM', base .. 'inflight', id) > 0 and anyWaits()
local told = waiters(id)
if target ~= 'failed' and not makesRoom then return { 'OK', now, told } end

-- Most runs have ended by now, without a look at the gate.
--- @include "vacated"
if target == 'failed' then
  local g = load(now)
  if g then usage().note(g, now, 1, usage().FAILED) end
  -- One that failed unsent had its place until now; any other gave it up when it started.
  call('ZREM', base .. 'slots', id)
end
if makesRoom then vacated(now) end
return { 'OK', now, told }
