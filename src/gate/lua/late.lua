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
-- A start that turned out later than `late` (a connection had to be made first) must not crowd the starts that follow:
-- the schedule moves by the excess, or skips one slot where that is less. The late start then counts in place of the
-- skipped one, so windows still hold, as long as it is not late by a whole period. `seen` is what the schedule had moved
-- in all when the slot was reserved: several starts that were late together need not move it several times.
local function shift(g, id, slot, excess, seen)
  local more = math.min(excess - (g.shifted - seen), math.ceil(g.spacing))
  if more <= 0 then return end
  g.tat = g.tat + more
  g.last = g.last + more
  g.shifted = g.shifted + more
  g.newest, g.undo = '', ''
  g.dirty = true
  -- Not later than now: the slot may be one of a clock that has been set back since.
  local start = math.min(slot + excess, g.now)
  if g.longest > 0 then call('ZADD', base .. 'log', 'XX', start, id .. '@' .. micros(slot)) end
  if g.costSum ~= g.costOut then costs().delay(g, slot, id, start) end
end

local now = clock(ARGV[1])
local g = load(now)
if not g then return { 'UNDECLARED' } end
shift(g, ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]))
save(g)
return { 'OK', micros(now) }
