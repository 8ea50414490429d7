-- What happened in the last seconds.
--
-- KEYS[1]  gate hash
-- ARGV[1]  now in µs, '' for the server's time
-- ARGV[2]  seconds, the running one included; at most 3600
-- Reply    { 'OK', now, { { second, starts, refused by us, refused by the server, failed }… } } of the seconds in which
--          something happened, the oldest first; or { 'UNDECLARED' }
-- O(seconds)
--- @include "gate"
local now = clock(ARGV[1])
local g = load(now)
if not g then return { 'UNDECLARED' } end
local last = math.floor(now / 1000000)
local first = last - tonumber(ARGV[2]) + 1

local seconds = {}
local function add(place, second, count)
  seconds[second] = seconds[second] or { second, 0, 0, 0, 0 }
  seconds[second][place] = seconds[second][place] + count
end
local of = usage()
for place, kind in ipairs({ of.STARTED, of.REFUSED, of.THROTTLED, of.FAILED }) do
  of.each(first, last, kind, function(second, count) add(place + 1, second, count) end)
end
if g.starts > 0 and g.second >= first then add(2, math.min(g.second, last), g.starts) end

local list = {}
for second = first, last do
  if seconds[second] then list[#list + 1] = seconds[second] end
end
return { 'OK', micros(now), list }
