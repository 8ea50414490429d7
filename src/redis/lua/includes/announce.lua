--- @include "wake"

-- The gate was changed: whoever sleeps until the old slot looks again.
local function announce(g, now)
  giveTurn(g, '', now, 0)
  save(g)
  if waitingCalls(g) == 0 then
    local changed = load(now)
    expireWhenIdle(changed, now)
    save(changed)
  end
  local prefix, bucket = names()
  call('PUBLISH', prefix .. ':wake', bucket)
end
