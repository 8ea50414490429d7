-- Takes waiting calls out of the queue without sending them.

-- Is the process that asked for this permit gone? A subscription ends with its connection, so a killed process is known
-- at once; a machine that vanished, or any client of a cluster, is known by the lease that it no longer renews.
local alive = {}
local function isGone(g, client, now)
  if alive[client] == nil then
    local lease = tonumber(call('ZSCORE', base .. 'leases', client) or 0)
    alive[client] = lease > now and (g.cluster == '1' or call('PUBSUB', 'NUMSUB', client)[2] > 0)
  end
  return not alive[client]
end

local function waiters(id)
  local list = call('SMEMBERS', base .. 'waiters:' .. id)
  if #list > 0 then call('DEL', base .. 'waiters:' .. id) end
  return list
end

-- Puts a word before a list. (Of thousands who wait, `unpack` would be an error, and what is half done would stay so.)
local function because(word, list)
  table.insert(list, 1, word)
  return list
end

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

-- A call that waits for a second time leaves the queue.
local function leave(g, job)
  if job[4] ~= '1' then return false end
  g.again = g.again - 1
  g.dirty = true
  return true
end

-- Puts a call at the head of the queue, where BullMQ would put it too, but behind those that were admitted earlier and
-- have come back before it. `o` is the order of admission.
local function line(id)
  local wait, mine, older = base .. 'wait', call('HGET', base .. id, 'o') or '', {}
  while true do
    local head = call('LINDEX', wait, -1)
    if not head or (call('HGET', base .. head, 'o') or mine) >= mine then break end
    older[#older + 1] = call('RPOP', wait)
  end
  call('RPUSH', wait, id)
  for i = #older, 1, -1 do call('RPUSH', wait, older[i]) end
end

-- A call comes back from its worker to the queue. It had its place and gave it up when it first started; only one whose
-- slot is still to come has not, and keeps it.
local function comeBack(g, id, now)
  call('ZREM', base .. 'inflight', id)
  local slot = call('ZSCORE', base .. 'slots', id)
  if slot then call('ZREM', base .. 'slots', id) end
  if slot and tonumber(slot) > now then return end
  call('HSET', base .. id, 'r', '1')
  g.again = g.again + 1
  g.dirty = true
end

-- Calls that are to be redelivered by now come to the end of the queue: from here on, that is their place in its order.
local function bringBack(now)
  local due = '(' .. micros(delayedScore(now + 1000))
  for _, id in ipairs(call('ZRANGEBYSCORE', base .. 'delayed', '-inf', due, 'LIMIT', 0, 1000)) do
    call('ZREM', base .. 'delayed', id)
    call('HSET', base .. id, 'o', string.format('%015.0f', call('INCR', base .. 'id')))
    call('LPUSH', base .. 'wait', id)
  end
end

-- The lock ran out while its worker was busy or Redis was away. Where nobody has taken the call since, it is still that
-- worker's: takes it out of the queue again if it was put back.
local function reclaim(id, now)
  if call('LREM', base .. 'wait', -1, id) == 0 then return end
  call('LPUSH', base .. 'active', id)
  local again, key = unpack(call('HMGET', base .. id, 'r', 'd'))
  if key then forget(id, key) end
  local g = load(now)
  if g and leave(g, { false, false, false, again }) then save(g) end
end

-- Removes the job and, for a durable call, keeps `outcome` as its result. Returns who is to be told:
-- { id, client or '', waiting processes… }.
local function discard(id, kind, client, outcome, keepMs)
  local key, own = unpack(call('HMGET', base .. id, 'd', 'm'))
  if key then forget(id, key) end
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
