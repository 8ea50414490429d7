-- Takes slots for calls that are out of the queue already: a further attempt, or starts that came too late.
--
-- KEYS[1]  gate hash
-- ARGV[1]  now in µs, '' for the server's time
-- ARGV[2]  'next': reserve, giving back what was held · 'confirm': keep what is held unless a pause, block or other rate
--          has come over it, else reserve anew · 'return': give back what is held
-- ARGV[3]  latest useful start in µs, or ''
-- ARGV[4]  how far ahead a new slot lies at least, in µs: one that is over when the reply arrives is of no use
-- ARGV[5…] triples of the call's id, the slot it has held so far in µs or '', and its cost; in the order of their slots
-- Reply    { 'OK', now, { slots… }, lateness in µs, moved in all in µs } · { 'EXPIRED', now } · { 'UNDECLARED' }
-- O(rules · log log-size) per slot
--- @include "gate"
local now = clock(ARGV[1])
local g = load(now)
if not g then return { 'UNDECLARED' } end
local mode, deadline, lead = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]) or 0

-- Undoes a reservation whose start did not happen. Only the newest slot can be used again by somebody else; an older
-- one stays empty, since later slots have been promised already.
local function giveBack(g, slot, id, cost)
  -- A call may hold two slots for a while: one for its next attempt, and one that it has left to another call.
  local member = id .. '@' .. micros(slot)
  call('ZREM', base .. 'later', member)
  local recalled = call('ZREM', base .. 'recalled', member) == 1
  if g.longest > 0 then call('ZREM', base .. 'log', member) end
  if g.costSum ~= g.costOut then costs().change(g, slot, id, 0) end
  if not recalled and #g.classic > 0 then classic().uncount(g, slot, cost) end
  tally(g, slot, -1)
  g.dirty = true
  if g.newest ~= id or g.last ~= slot or not g.undo or g.undo == '' then return end
  local tat, part, last = string.match(g.undo, '^(%d+) (%d+) (%d+)$')
  g.tat, g.part, g.last = tonumber(tat), tonumber(part), tonumber(last)
  g.newest, g.undo = '', ''
  g.dirty = true
end

-- The slot, at another time by now when the clock was set back; nil when it does not stand any more.
local function standing(id, held)
  local member = id .. '@' .. micros(held)
  local stands = tonumber(call('ZSCORE', base .. 'later', member) or held)
  if stands >= g.closedUntil and not call('ZSCORE', base .. 'recalled', member) then return stands end
end

local function take(id, cost, unstarted)
  local slot = nextSlot(g, now + lead, cost)
  call('ZREM', base .. 'slots', id)
  if deadline and slot > deadline then return nil end
  reserve(g, now, slot, id, unstarted, cost)
  return micros(slot)
end

local count = (#ARGV - 4) / 3
local function heldBy(n)
  local at = 2 + 3 * n
  return ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
end

-- The newest first: only that one can be used again by others.
local unstarted, slots = {}, {}
for n = count, 1, -1 do
  local id, held, cost = heldBy(n)
  local stands = mode == 'confirm' and standing(id, held)
  if stands then
    slots[n] = micros(stands)
  else
    local place = call('ZSCORE', base .. 'slots', id)
    unstarted[id] = place and tonumber(place) > now
    if held then giveBack(g, held, id, cost) end
  end
end
for n = 1, count do
  local id, _, cost = heldBy(n)
  if mode == 'return' then
    -- A durable call keeps its place until its worker has put it back into the queue.
    if call('EXISTS', base .. id) == 0 then call('ZREM', base .. 'slots', id) end
  elseif not slots[n] then
    slots[n] = take(id, cost, unstarted[id])
    if not slots[n] then
      save(g)
      return { 'EXPIRED', micros(now) }
    end
  end
end
save(g)
return { 'OK', now, slots, g.late, g.shifted }
