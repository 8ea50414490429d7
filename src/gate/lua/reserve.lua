-- Takes a slot for a call that is out of the queue already: a further attempt, or a start that came too late.
--
-- KEYS[1]  gate hash
-- ARGV[1]  now in µs, '' for the server's time
-- ARGV[2]  id of the call
-- ARGV[3]  'next': reserve, giving back ARGV[4] first · 'confirm': keep slot ARGV[4] unless a pause, block or other
--          rate has come over it, else reserve anew · 'return': give back ARGV[4] · 'late': the start in slot ARGV[4] was
--          later than allowed by ARGV[5] µs
-- ARGV[4]  slot held so far in µs, or ''
-- ARGV[5]  latest useful start in µs, or ''
-- ARGV[6]  late: what the schedule had moved in all when the slot was reserved, in µs
-- Reply    { 'OK', now, slot, lateness in µs, moved in all in µs } · { 'EXPIRED', now } · { 'UNDECLARED' }
-- O(rules · log log-size)
--- @include "gate"
local now = clock(ARGV[1])
local g = load(now)
if not g then return { 'UNDECLARED' } end
local id, mode, held, deadline = ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])

if mode == 'confirm' then
  -- At another time by now when the clock was set back.
  local stands = tonumber(call('ZSCORE', base .. 'later', id) or held)
  if stands >= g.closedUntil and not call('ZSCORE', base .. 'recalled', id) then
    return { 'OK', micros(now), micros(stands), g.late, micros(g.shifted) }
  end
end
if mode == 'late' then
  shift(g, id, held, deadline, tonumber(ARGV[6]))
  save(g)
  return { 'OK', micros(now), micros(held), g.late, micros(g.shifted) }
end
local place = call('ZSCORE', base .. 'slots', id)
local unstarted = place and tonumber(place) > now
if held then giveBack(g, held, id) end
if mode == 'return' then
  -- A durable call keeps its place until its worker has put it back into the queue.
  if call('EXISTS', base .. id) == 0 then call('ZREM', base .. 'slots', id) end
  save(g)
  return { 'OK', micros(now), '0', g.late, micros(g.shifted) }
end
local slot = nextSlot(g, now)
call('ZREM', base .. 'slots', id)
if deadline and slot > deadline then
  save(g)
  return { 'EXPIRED', micros(now) }
end
reserve(g, now, slot, id, unstarted)
save(g)
return { 'OK', micros(now), micros(slot), g.late, micros(g.shifted) }
