-- Deletes a simulated bucket.
--
-- KEYS[1]  gate hash
-- Reply    calls that still waited
-- O(waiting)
--- @include "gate"
local g = read(0)
for _, one in ipairs(g and g.classic or {}) do call('DEL', one.key) end
local waiting = call('ZRANGE', base .. 'deadlines', 0, -1)
for _, id in ipairs(waiting) do call('DEL', base .. id) end
for _, name in ipairs({ 'wait', 'prioritized', 'deadlines', unpack(VOLATILE) }) do call('DEL', base .. name) end
return #waiting
