-- Blocks a key of the classic limiters by hand, whatever their rules.
--
-- KEYS[1]  `<prefix>:limiter:{<key>}:block`
-- ARGV[1]  now in µs as the caller has it, '' for the server's time
-- ARGV[2]  duration in µs
-- ARGV[3]  reason
-- Reply    the time in ms of the server's clock at which the block is forgotten
-- O(1)
--- @include "clock"
local now, duration = clock(ARGV[1]), tonumber(ARGV[2])
-- A block on a time of the caller's own holds for replays, which may be slower than what they replay.
local kept = math.ceil((duration + (ARGV[1] ~= '' and 3600000000 or 0)) / 1000)
call('SET', KEYS[1], micros(now + duration) .. ' ' .. ARGV[3], 'PX', micros(kept))
return micros(math.ceil(clock() / 1000) + kept)
