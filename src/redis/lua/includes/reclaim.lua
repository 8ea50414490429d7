--- @lazy "dedupe"

-- The lock ran out while its worker was busy or Redis was away. Where nobody has taken the call since, it is still that
-- worker's: takes it out of the queue again if it was put back.
local function reclaim(id)
  if call('LREM', base .. 'wait', -1, id) == 0 then return end
  call('LPUSH', base .. 'active', id)
  local again, key = unpack(call('HMGET', base .. id, 'r', 'd'))
  if key then dedupe().forget(id, key) end
  call('ZREM', base .. 'deadlines', id)
  -- As `leave`, without the gate.
  if again == '1' and call('HEXISTS', KEYS[1], 'limit') == 1 then call('HINCRBY', KEYS[1], 'again', -1) end
end
