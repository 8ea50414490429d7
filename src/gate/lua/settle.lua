-- Corrects what a call was taken to cost, when its server has said what it did cost.
--
-- KEYS[1]  gate hash
-- ARGV[1]  now in µs, '' for the server's time
-- ARGV[2]  id
-- ARGV[3]  slot in which it started, in µs
-- ARGV[4]  cost that it was taken to have so far
-- ARGV[5]  cost in fact
-- Reply    { 'OK', now } or { 'UNDECLARED' }
-- O(starts since then)
--- @include "gate"
local now = clock(ARGV[1])
local g = load(now)
if not g then return { 'UNDECLARED' } end
local slot, reserved, actual = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])

costs().change(g, slot, ARGV[2], actual)
if g.weighed and actual ~= reserved then
  local more = math.ceil((actual - reserved) * g.cycle / g.limit)
  -- What may have leaked out since then is not given back: the bucket may have been empty meanwhile.
  if more < 0 then more = math.min(0, more + math.max(0, now - slot)) end
  g.tat = g.tat + more
  if g.tat < g.last then g.tat, g.part = g.last, 0 end
  g.newest, g.undo = '', ''
  g.dirty = true
end
save(g)
-- Whoever waits for the next slot may find that it comes earlier now.
if actual < reserved and g.turn and g.turn ~= '' and waitingCalls(g) > 0 then
  local _, bucket = names()
  call('PUBLISH', g.turn, bucket)
end
return { 'OK', micros(now) }
