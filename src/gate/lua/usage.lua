-- Counts the starts of the last seconds.
--
-- KEYS[1]  gate hash
-- ARGV[1]  now in µs, '' for the server's time
-- ARGV[2]  seconds, the running one included; at most 3600
-- Reply    { 'OK', now, starts } or { 'UNDECLARED' }
-- O(seconds in use within the hour)
--- @include "gate"
local now = clock(ARGV[1])
local g = load(now)
if not g then return { 'UNDECLARED' } end
local since = math.floor(now / 1000000) - tonumber(ARGV[2])
local starts = g.second > since and g.starts or 0
for _, entry in ipairs(call('HVALS', base .. 'usage')) do
  local second, count = string.match(entry, '(%d+) (%d+)')
  if tonumber(second) > since then starts = starts + tonumber(count) end
end
return { 'OK', micros(now), starts }
