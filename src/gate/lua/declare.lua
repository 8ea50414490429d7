-- Writes the declared policy of a bucket. A policy set by `limit().set()` stays in force over it.
--
-- KEYS[1]  gate hash
-- ARGV[1]  policy, a JSON object of the flat fields limit, per, burst, late, rules, classic, weighed, capacity, overflow,
--          concurrency, cluster
-- ARGV[2]  now in µs, '' or none for the server's time
-- Reply    1
-- O(1)
--- @include "gate"
local now = clock(ARGV[2])
local before = load(now)
local declared = cjson.decode(ARGV[1])
call('HSET', KEYS[1], 'declared', ARGV[1])
local override = call('HGET', KEYS[1], 'override')
if override then
  for name, value in pairs(cjson.decode(override)) do declared[name] = value end
end
changes().writePolicy(declared)
-- BullMQ would set it with each job that is added.
call('HSET', base .. 'meta', 'opts.maxLenEvents', 16)
local g = load(now)
if before then changes().reschedule(g, before) end
if waitingCalls(g) == 0 then expireWhenIdle(g, now) end
save(g)
return 1
