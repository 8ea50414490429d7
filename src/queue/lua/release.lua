-- Ends the flight of a permit: the caller's request is over, so `concurrency` has room for another.
--
-- KEYS[1]  gate hash
-- ARGV[1]  now in µs, '' for the server's time
-- ARGV[2…] ids
-- Reply    { 'OK', now }
-- O(log in-flight) per id
--- @include "bucket"
--- @include "waiting"
local now = clock(ARGV[1])
local removed = 0
for i = 2, #ARGV do removed = removed + call('ZREM', base .. 'inflight', ARGV[i]) end
if removed == 0 or not anyWaits() then return { 'OK', now } end

-- Most runs have ended by now, without a look at the gate.
--- @include "vacated"
vacated(now)
return { 'OK', now }
