-- Reads the result of a durable call, or registers a process that waits for it.
--
-- KEYS[1]  gate hash
-- ARGV[1]  id
-- ARGV[2]  who waits (see queue/waiters.ts), or '' to look only
-- ARGV[3]  ms for which the registration lasts
-- Reply    { 'DONE', result without body, body } · { 'WAITING' } · { 'ACTIVE' } · { 'UNKNOWN' }
-- O(1)
--- @include "bucket"
local result = call('HMGET', base .. 'result:' .. ARGV[1], 'm', 'b')
if result[1] then return { 'DONE', result[1], result[2] or '' } end
-- What is left of a failed call when its result is no longer kept serves `failed` only.
if call('EXISTS', base .. ARGV[1]) == 0 or call('ZSCORE', base .. 'failed', ARGV[1]) then return { 'UNKNOWN' } end
if ARGV[2] ~= '' then
  call('SADD', base .. 'waiters:' .. ARGV[1], ARGV[2])
  call('PEXPIRE', base .. 'waiters:' .. ARGV[1], ARGV[3])
end
if call('EXISTS', base .. ARGV[1] .. ':lock') == 1 then return { 'ACTIVE' } end
return { 'WAITING' }
