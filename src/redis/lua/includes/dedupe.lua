-- Keys under which only one call may wait.

-- The call that waits under a key, if it still does.
local function holderOf(key)
  local id = call('HGET', base .. 'dedupe', key)
  if not id then return nil end
  local job = call('HMGET', base .. id, 'd', 'processedOn')
  return job[1] == key and not job[2] and id or nil
end

local function hold(id, key)
  if not holderOf(key) then call('HSET', base .. 'dedupe', key, id) end
end

-- Another call may wait under that key again.
local function forget(id, key)
  if call('HGET', base .. 'dedupe', key) == id then call('HDEL', base .. 'dedupe', key) end
end

return { holderOf = holderOf, hold = hold, forget = forget }
