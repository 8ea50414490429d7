-- Deletes a simulated bucket.
--
-- KEYS[1]  gate hash
-- Reply    calls that still waited
-- O(waiting, and producers with a quota)
--- @include "gate"
local function erase(key) call('DEL', key) end
local g = read(0)
for _, one in ipairs(g and g.classic or {}) do erase(one.key) end
for _, key in ipairs(call('SMEMBERS', base .. 'quotas')) do erase(key) end
local waiting = call('ZRANGE', base .. 'patience', 0, -1)
for _, id in ipairs(waiting) do erase(base .. id) end
for _, name in ipairs({ 'wait', 'prioritized', 'patience', 'quotas' }) do erase(base .. name) end
eachKey(erase)
return #waiting
