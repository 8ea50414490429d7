-- Takes waiting calls out of the queue without sending them.
--- @include "waiters"
--- @lazy "dedupe"

-- Puts a word before a list. (Of thousands who wait, `unpack` would be an error, and what is half done would stay so.)
local function because(word, list)
  table.insert(list, 1, word)
  return list
end

-- Removes the job and, for a durable call, keeps `outcome` as its result. Returns who is to be told:
-- { id, client or '', waiting processes… }.
local function discard(id, kind, client, outcome, keepMs)
  local key, own = unpack(call('HMGET', base .. id, 'd', 'm'))
  if key then dedupe().forget(id, key) end
  if own then call('ZREM', base .. 'deadlines', id) end
  call('DEL', base .. id)
  if kind == 'permit' then return { id, client or '' } end
  if keepMs > 0 then
    call('HSET', base .. 'result:' .. id, 'm', outcome)
    call('PEXPIRE', base .. 'result:' .. id, keepMs)
  end
  return because(id, because('', waiters(id)))
end

-- As `discard`, for a call that has waited too long; with the reason before it. Where the call has a bound of its own, its
-- outcome names that one.
local function expire(id, kind, client, outcome, keepMs)
  local own = kind ~= 'permit' and call('HGET', base .. id, 'm')
  if own then
    local changed = cjson.decode(outcome)
    changed.maxWait = tonumber(own)
    outcome = cjson.encode(changed)
  end
  return because('expired', discard(id, kind, client, outcome, keepMs))
end

return { because = because, discard = discard, expire = expire }
