-- Replays calls of one bucket in virtual time, through the very scripts that admit, take and cancel calls. Whatever is due
-- before a call comes, or just then, happens first: slots, the ends of flights, and the ends of waits.
--
-- KEYS[1]  gate hash
-- ARGV[1]  when the queue is to be looked at next, in µs, '' for not before a call waits
-- ARGV[2]  until when to go on behind the last call, in µs, or ''
-- ARGV[3]  most steps: Redis serves nobody else meanwhile
-- ARGV[4]  arguments of admit up to the first call, a JSON array of strings; their time is set here
-- ARGV[5]  arguments of take, likewise
-- ARGV[6]  quota of each producer, as for admit, or ''
-- ARGV[7…] triples of time in µs, id, and options as for admit. An id ends in `.<time in flight in µs>`
-- Reply    { calls that came, when to look again in µs or '', events }
--          events: triples of 'waits', id, time · 'sent', id, slot · 'expired', id, time · 'dropped', id, time ·
--          'refused', id, reply of admit
-- O(steps), each as the script it runs
--- @include "gate"
--- @include "wake"
--- @lazy "quota"
--- @script "admit"
--- @script "take"
--- @script "cancel"
local due, till, most = tonumber(ARGV[1]) or math.huge, tonumber(ARGV[2]), tonumber(ARGV[3])
local admission, taking = cjson.decode(ARGV[4]), cjson.decode(ARGV[5])
local FIRST, KEPT_MS = 7, 3600000
-- Until when each call waits, and the keys in which quotas are counted.
local patience, quotas = base .. 'patience', base .. 'quotas'
local steps, events = 0, {}

local function tell(what, id, detail)
  events[#events + 1], events[#events + 2], events[#events + 3] = what, id, detail
end

local function left(what, id, now)
  call('ZREM', patience, id)
  tell(what, id, micros(now))
end

-- All scripts forget a flight whose time is over.
local function fly(id, slot)
  call('ZADD', base .. 'inflight', 'XX', micros(slot + tonumber(string.match(id, '%d+$'))), id)
end

local function earliest(name)
  local first = call('ZRANGE', base .. name, 0, 0, 'WITHSCORES')
  return tonumber(first[2]) or math.huge, first[1]
end

local function declared(reply)
  if reply[1] == 'UNDECLARED' then error('spillway: the simulated bucket is gone') end
  return reply
end

local function look(now)
  taking[1] = micros(now)
  local reply = declared(take(KEYS, taking))
  local state, calls, dropped, counted = reply[1], reply[4], reply[5], reply[8] > 0
  for _, one in ipairs(dropped) do left(string.match(one[1], '%a+'), one[2], now) end
  for _, one in ipairs(calls) do
    local id, slot = one[1], tonumber(one[2])
    left('sent', id, slot)
    if counted then fly(id, slot) end
  end
  if state == 'more' then
    due = now
  elseif state == 'wait' then
    due = tonumber(reply[3])
  else
    due = state == 'full' and earliest('inflight') or math.huge
  end
end

-- Whoever waits gives up in time, which frees the place.
local function giveUp(id, now)
  cancel(KEYS, { micros(now), id, '0', '' })
  left('expired', id, now)
end

-- Does what is due up to then; false when there is more than may be done at once.
local function settle(until_)
  while steps < most do
    if due == math.huge then return true end
    local deadline, id = earliest('patience')
    if math.min(due, deadline) > until_ then return true end
    steps = steps + 1
    if due <= deadline then look(due) else giveUp(id, deadline) end
  end
  return false
end

local function wait(id, now, expected)
  tell('waits', id, micros(now))
  local deadline = call('HGET', base .. id, 'x')
  if deadline ~= '' then call('ZADD', patience, deadline, id) end
  -- Should the process die, nothing stays for ever.
  call('PEXPIRE', base .. id, 24 * KEPT_MS)
  -- Looking earlier than the gate may open would do no harm, but cost time.
  if due == math.huge then due = math.max(now, expected) end
end

local function arrive(now, id, options)
  local call_ = { unpack(admission) }
  call_[1] = micros(now)
  for _, part in ipairs({ id, '{}', options }) do call_[#call_ + 1] = part end
  local reply = declared(admit(KEYS, call_))
  if reply[1] == 'GRANTED' then
    tell('sent', id, reply[3])
    if reply[6] > 0 then fly(id, tonumber(reply[3])) end
  elseif reply[1] == 'ADDED' then
    for _, one in ipairs(reply[8]) do left('dropped', one[1], now) end
    wait(id, now, tonumber(reply[4]))
  else
    tell('refused', id, reply)
  end
end

-- Keys live as long as the simulation works on them, however much slower than time it is.
local function keep(key) call('PEXPIRE', key, KEPT_MS) end
local allowance = ARGV[6] ~= '' and quota().open(ARGV[6], 0)
local function keepQuota(options)
  local key = allowance.keyOf(options == '' and '' or cjson.decode(options).q or '')
  call('SADD', quotas, key)
  keep(key)
end
local function keepAll()
  eachKey(keep)
  for _, key in ipairs({ base .. 'wait', base .. 'prioritized', patience, quotas }) do keep(key) end
  -- Not `load`: where no call came, the time that has been reached is not known here.
  for _, one in ipairs(read(0).classic) do keep(one.key) end
end

local calls, came = (#ARGV - FIRST + 1) / 3, 0
local now = 0
for i = 0, calls - 1 do
  local time, id, options = unpack(ARGV, FIRST + 3 * i, FIRST + 3 * i + 2)
  now = tonumber(time)
  if not settle(now) then break end
  arrive(now, id, options)
  if allowance then keepQuota(options) end
  steps, came = steps + 1, came + 1
end
if came == calls and till then settle(till) end
keepAll()
return { came, due == math.huge and '' or micros(due), events }
