-- Usage of one subject: adds to the count of an interval, and sums up the last ones.
--
-- KEYS[1]  `<prefix>:usage:{<subject>}:<action>:…`, a ring (see ring.lua)
-- ARGV[1]  now in µs as the caller has it, '' for the server's time
-- ARGV[2]  length of an interval in µs
-- ARGV[3]  intervals in the ring
-- ARGV[4]  what to add, 0 for nothing
-- ARGV[5]  how many intervals to sum up, the running one included; 0 for none
-- Reply    the sum
-- O(intervals summed up)
--- @include "clock"
--- @include "ring"
local now, injected = clock(ARGV[1]), ARGV[1] ~= ''
local interval, slots, n, count = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local number = math.floor(now / interval)
if n > 0 then
  ringAdd(KEYS[1], slots, number, n, '')
  -- Who brings his own time may replay the past, slower than it was.
  call('PEXPIRE', KEYS[1], micros(math.ceil(((slots + 1) * interval + (injected and 3600000000 or 0)) / 1000)))
end
local sum = 0
if count > 0 then ringEach(KEYS[1], slots, number - count + 1, number, '', function(_, more) sum = sum + more end) end
return micros(sum)
