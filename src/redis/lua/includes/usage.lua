-- What happened, by second, for an hour: starts, calls that we refused, that the server refused, and that failed.
--- @include "ring"

local RING_SECONDS = 3600
local STARTED, REFUSED, THROTTLED, FAILED = '', 'r', 't', 'f'

local function add(g, second, n, kind)
  ringAdd(base .. 'usage', RING_SECONDS, second, n, kind)
  age(g, 'usage')
end

local function note(g, now, n, kind)
  if n > 0 then add(g, math.floor(now / 1000000), n, kind) end
end

-- Calls `see(second, count)` for each from `first` to `last` in which something of that kind happened.
local function each(first, last, kind, see) ringEach(base .. 'usage', RING_SECONDS, first, last, kind, see) end

return {
  STARTED = STARTED, REFUSED = REFUSED, THROTTLED = THROTTLED, FAILED = FAILED, add = add, note = note, each = each,
}
