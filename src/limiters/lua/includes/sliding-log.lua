-- Sliding log: the time of every call, for one or several rules at once, as in DomainTools/rate-limit.
--
-- Rule     sliding-log:<limit>:<per>[:<limit>:<per>…]: all must hold
-- Promise  never more than limit in any window (t, t + per], for each rule, whatever the order of calls
-- State    list of times, the oldest first, one for each unit of cost, trimmed to the largest limit
-- Memory   about 11 bytes for each unit of the largest limit
-- Time     O(cost + rules · log limit), with steps over nodes of 8 KB of the list; a call that is older than others also
--          moves those
local SlidingLog = { exact = true }
do
  local CHUNK = 1000

  local function append(key, times)
    for first = 1, #times, CHUNK do
      call('RPUSH', key, unpack(times, first, math.min(#times, first + CHUNK - 1)))
    end
  end

  -- Of the times, the nth from the newest; nil where there are fewer.
  local function nth(key, n) return tonumber(call('LINDEX', key, -n) or nil) end

  local function untilOf(key, rule) return (nth(key, 1) or 0) + rule.reach end

  function SlidingLog.rule(numbers)
    local rule = { windows = {}, longest = 0, reach = 0, most = math.huge }
    for i = 1, #numbers, 2 do
      rule.windows[#rule.windows + 1] = { limit = numbers[i], per = numbers[i + 1] }
      rule.longest = math.max(rule.longest, numbers[i])
      rule.reach = math.max(rule.reach, numbers[i + 1])
      rule.most = math.min(rule.most, numbers[i])
    end
    return rule
  end

  function SlidingLog.earliest(key, rule, at, cost)
    if cost > rule.most then return math.huge end
    local earliest = at
    for _, window in ipairs(rule.windows) do
      -- The newest of those that have to be out of the window.
      local time = cost > 0 and nth(key, window.limit - cost + 1)
      if time then earliest = math.max(earliest, time + window.per) end
    end
    return earliest
  end

  -- While slots lie ahead that may be given back, those that they pushed out of the newest `longest` are kept as well.
  local function trim(key, rule, now)
    if (nth(key, 1) or 0) <= now then return call('LTRIM', key, -rule.longest, -1) end
    while call('LLEN', key) > rule.longest and tonumber(call('LINDEX', key, 0)) + rule.reach <= now do
      call('LPOP', key)
    end
  end

  function SlidingLog.count(key, rule, at, cost, now)
    local later, times = {}, {}
    while (nth(key, 1) or 0) > at do later[#later + 1] = call('RPOP', key) end
    for i = 1, math.min(cost, rule.longest) do times[i] = micros(at) end
    for i = #later, 1, -1 do times[#times + 1] = later[i] end
    append(key, times)
    trim(key, rule, now or math.huge)
    return untilOf(key, rule)
  end
  SlidingLog.refuse = SlidingLog.count

  function SlidingLog.uncount(key, _, at, cost) call('LREM', key, -cost, micros(at)) end

  -- How many times are later than `time`.
  local function since(key, time)
    local low, high = 0, call('LLEN', key)
    while low < high do
      local middle = math.ceil((low + high) / 2)
      if nth(key, middle) > time then low = middle else high = middle - 1 end
    end
    return low
  end

  function SlidingLog.status(key, rule, at)
    local remaining, reset = math.huge, at
    local newest = nth(key, 1)
    for _, window in ipairs(rule.windows) do
      remaining = math.min(remaining, math.max(0, window.limit - since(key, at - window.per)))
      if newest then reset = math.max(reset, newest + window.per) end
    end
    return remaining, reset
  end

  -- Of the window that holds most of them.
  function SlidingLog.used(key, rule, at)
    local used = 0
    for _, window in ipairs(rule.windows) do used = math.max(used, since(key, at - window.per)) end
    return math.min(used, rule.longest), rule.longest
  end

  function SlidingLog.newest(key) return nth(key, 1) end

  function SlidingLog.shift(key, rule, by)
    local times = call('LRANGE', key, 0, -1)
    for i, time in ipairs(times) do times[i] = micros(math.max(0, time - by)) end
    call('DEL', key)
    append(key, times)
    return untilOf(key, rule)
  end
end
