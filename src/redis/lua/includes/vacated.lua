--- @include "gate"
--- @include "wake"

-- A flight has ended, and calls wait: whoever found the bucket full looks again.
local function vacated(now)
  local g = load(now)
  if not g then return end
  attend(g, now)
  save(g)
end
