-- Changes a bucket for every process at once, and tells the workers to look again.
--
-- KEYS[1]  gate hash
-- ARGV[1]  now in µs, '' for the server's time
-- ARGV[2]  'pause' · 'resume' · 'block' · 'unblock' · 'set' · 'unset' · 'clear'
-- ARGV[3]  pause, block, set: duration in µs ('' = until changed) · clear: ms for which outcomes are kept
-- ARGV[4]  pause, block: reason · set: JSON of the changed policy fields · clear: the outcome, JSON
-- Reply    { 'OK', now, until in µs or 0, { dropped… } } or { 'UNDECLARED' }
-- O(1); clear: O(waiting)
--- @include "gate"
--- @include "announce"
--- @lazy "drop"
--- @lazy "returns"
local now = clock(ARGV[1])
local g = load(now)
if not g then return { 'UNDECLARED' } end
local op, duration, dropped, till = ARGV[2], tonumber(ARGV[3]), {}, 0

local function reload()
  local before = g
  g = load(now)
  changes().reschedule(g, before)
end

-- Opens what is closed until `name`. That it was closed until now still counts: nothing is saved up meanwhile.
local function open(name, reason)
  if g[name] > now then
    call('HSET', KEYS[1], name, micros(now))
    g[name] = now
    g.closedUntil = math.max(g.pausedUntil, g.blockedUntil)
    if g.closedUntil <= now then changes().recall(g) end
  end
  call('HDEL', KEYS[1], reason)
end

local function setPolicy(patch, expires)
  local override = cjson.decode(call('HGET', KEYS[1], 'override') or '{}')
  for name, value in pairs(patch) do override[name] = value end
  call('HSET', KEYS[1], 'override', cjson.encode(override), 'overrideUntil', expires and micros(expires) or '0')
  changes().writePolicy(patch)
end

if op == 'pause' then
  till = duration and now + duration or changes().FOREVER
  if till > g.pausedUntil then call('HSET', KEYS[1], 'pausedUntil', micros(till), 'pauseReason', ARGV[4]) end
  till = math.max(till, g.pausedUntil)
elseif op == 'resume' then
  open('pausedUntil', 'pauseReason')
elseif op == 'block' then
  till = duration and now + duration or changes().FOREVER
  call('HSET', KEYS[1], 'blockedUntil', micros(till), 'blockReason', ARGV[4])
elseif op == 'unblock' then
  open('blockedUntil', 'blockReason')
elseif op == 'set' then
  till = duration and now + duration or 0
  setPolicy(cjson.decode(ARGV[4]), duration and till or nil)
  reload()
elseif op == 'unset' then
  if call('HEXISTS', KEYS[1], 'override') == 1 then changes().endOverride() end
  reload()
elseif op == 'clear' then
  local ids = call('ZRANGE', base .. 'prioritized', 0, -1)
  local line = call('LRANGE', base .. 'wait', 0, -1)
  for i = #line, 1, -1 do ids[#ids + 1] = line[i] end
  for _, id in ipairs(call('ZRANGE', base .. 'delayed', 0, -1)) do ids[#ids + 1] = id end
  call('DEL', base .. 'wait', base .. 'prioritized', base .. 'delayed')
  for _, id in ipairs(ids) do
    local job = call('HMGET', base .. id, 'name', 'c', 'x', 'r')
    returns().leave(g, job)
    if job[1] then dropped[#dropped + 1] = drop().because('cleared', drop().discard(id, job[1], job[2], ARGV[4], duration)) end
  end
end
announce(g, now)
return { 'OK', micros(now), micros(till), dropped }
