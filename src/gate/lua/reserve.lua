-- Takes slots for calls that are out of the queue already: a further attempt, or starts that came too late.
--
-- KEYS[1]  gate hash
-- ARGV[1]  now in µs, '' for the server's time
-- ARGV[2]  'next': reserve, giving back what was held · 'confirm': keep what is held unless a pause, block or other rate
--          has come over it, else reserve anew · 'return': give back what is held
-- ARGV[3]  latest useful start in µs, or ''
-- ARGV[4]  how far ahead a new slot lies at least, in µs: one that is over when the reply arrives is of no use
-- ARGV[5…] pairs of the call's id and the slot it has held so far in µs, or ''; in the order of their slots
-- Reply    { 'OK', now, { slots… }, lateness in µs, moved in all in µs } · { 'EXPIRED', now } · { 'UNDECLARED' }
-- O(rules · log log-size) per slot
--- @include "gate"
local now = clock(ARGV[1])
local g = load(now)
if not g then return { 'UNDECLARED' } end
local mode, deadline, lead = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]) or 0

-- The slot, at another time by now when the clock was set back; nil when it does not stand any more.
local function standing(id, held)
  local member = id .. '@' .. micros(held)
  local stands = tonumber(call('ZSCORE', base .. 'later', member) or held)
  if stands >= g.closedUntil and not call('ZSCORE', base .. 'recalled', member) then return stands end
end

local function take(id, unstarted)
  local slot = nextSlot(g, now + lead)
  call('ZREM', base .. 'slots', id)
  if deadline and slot > deadline then return nil end
  reserve(g, now, slot, id, unstarted)
  return micros(slot)
end

-- The newest first: only that one can be used again by others.
local unstarted, slots = {}, {}
for i = #ARGV - 1, 5, -2 do
  local id, held = ARGV[i], tonumber(ARGV[i + 1])
  local stands = mode == 'confirm' and standing(id, held)
  if stands then
    slots[(i - 3) / 2] = micros(stands)
  else
    local place = call('ZSCORE', base .. 'slots', id)
    unstarted[id] = place and tonumber(place) > now
    if held then giveBack(g, held, id) end
  end
end
for i = 5, #ARGV - 1, 2 do
  local id, n = ARGV[i], (i - 3) / 2
  if mode == 'return' then
    -- A durable call keeps its place until its worker has put it back into the queue.
    if call('EXISTS', base .. id) == 0 then call('ZREM', base .. 'slots', id) end
  elseif not slots[n] then
    slots[n] = take(id, unstarted[id])
    if not slots[n] then
      save(g)
      return { 'EXPIRED', micros(now) }
    end
  end
end
save(g)
return { 'OK', micros(now), slots, g.late, micros(g.shifted) }
