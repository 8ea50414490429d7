local call = redis.call

local function micros(t) return string.format('%.0f', t) end

-- Tests and simulations inject the time; everybody else gets the server's.
local function clock(injected)
  if injected and injected ~= '' then return tonumber(injected) end
  local t = call('TIME')
  return tonumber(t[1]) * 1000000 + tonumber(t[2])
end
