-- The processes that wait for the result of a durable call, which are told now.
local function waiters(id)
  local list = call('SMEMBERS', base .. 'waiters:' .. id)
  if #list > 0 then call('DEL', base .. 'waiters:' .. id) end
  return list
end
