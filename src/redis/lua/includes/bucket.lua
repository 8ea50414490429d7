-- The keys of one bucket. KEYS[1] is always its gate hash, `<prefix>:{<bucket>}:gate`. All others share its hash tag and
-- are derived from it; BullMQ's own scripts derive job keys in the same way.
--- @include "clock"
local base = string.sub(KEYS[1], 1, -5)

-- The prefix, and the name of the bucket.
local function names() return string.match(KEYS[1], '^(.*):{(.*)}:gate$') end
