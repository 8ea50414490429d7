-- Who looks at a bucket next. At most one worker has the *turn*: it sleeps until the next slot is near and takes the
-- call then. All others are *idle*: registered here, asleep without a timer of their own, woken by name.

local TURN_MICROS = 2000000

-- Wakes one idle worker by name. PUBLISH tells at once when that worker is gone (not so in a cluster, where it counts
-- the subscribers of one node only; there the sweep of the other workers repairs what a dead one leaves).
local function wakeIdle(g)
  for _ = 1, 8 do
    local popped = call('ZPOPMAX', base .. 'idle')
    if not popped[1] then return nil end
    local _, bucket = names()
    if call('PUBLISH', popped[1], bucket) > 0 or g.cluster == '1' then return popped[1] end
  end
  return nil
end

local function giveTurn(g, worker, now, till)
  if g.turn ~= worker then
    g.turn = worker
    g.turnSince = now
  end
  g.turnUntil = till
  g.dirty = true
end

-- Makes sure that somebody will look. Returns 1 when a worker does, 0 when there is none anywhere.
local function attend(g, now)
  if g.turnUntil > now then return 1 end
  local worker = wakeIdle(g)
  if worker then
    giveTurn(g, worker, now, now + TURN_MICROS)
    return 1
  end
  local prefix, bucket = names()
  local heard = call('PUBLISH', prefix .. ':wake', bucket)
  if heard > 0 or g.cluster == '1' then return 1 end
  return 0
end
