-- Hears of a start that was later than allowed, and keeps later ones at their distance from it.
--
-- KEYS[1]  gate hash
-- ARGV[1]  now in µs, '' for the server's time
-- ARGV[2]  id that the slot was reserved for
-- ARGV[3]  slot in µs
-- ARGV[4]  by how much it was too late, in µs
-- ARGV[5]  what the schedule had moved in all when the slot was reserved, in µs
-- Reply    { 'OK', now } or { 'UNDECLARED' }
-- O(log log-size)
--- @include "gate"
local now = clock(ARGV[1])
local g = load(now)
if not g then return { 'UNDECLARED' } end
shift(g, ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]))
save(g)
return { 'OK', micros(now) }
