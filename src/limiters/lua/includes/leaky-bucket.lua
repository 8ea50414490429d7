-- Leaky bucket as a meter: GCRA by virtual scheduling (ITU-T I.371, annex A), as in redis-cell and throttled.
--
-- Rule     leaky-bucket:<limit>:<per>:<burst>: one call every per/limit, and `burst` at once after the bucket stood idle
-- Promise  never more than burst + limit · t/per in any stretch of time t
-- State    string "<tat> <part> <last>": when the bucket will be empty, in whole µs and the rest in 1/limit µs, so that an
--          interval such as 1/3 s does not drift; and the newest time counted
-- Memory   one string of at most 44 bytes
-- Time     O(1)
local LeakyBucket = {}
do
  local function read(key)
    local tat, part, last = string.match(call('GET', key) or '', '^(%d+) (%d+) (%d+)$')
    if tat then return tonumber(tat), tonumber(part), tonumber(last) end
  end

  local function write(key, tat, part, last)
    call('SET', key, table.concat({ micros(tat), micros(part), micros(last) }, ' '), 'KEEPTTL')
    return tat + 1
  end

  -- The moment so many calls later (or, of a negative number, earlier).
  local function move(rule, tat, part, calls)
    local rest = part + calls * (rule.per % rule.limit)
    return tat + calls * math.floor(rule.per / rule.limit) + math.floor(rest / rule.limit), rest % rule.limit
  end

  local function whole(t, part) return part > 0 and t + 1 or t end

  local function timeFor(rule, tat, part, at, cost)
    if tat < at then return at end
    return math.max(at, whole(move(rule, tat, part, cost - rule.burst)))
  end

  function LeakyBucket.rule(numbers)
    return { limit = numbers[1], per = numbers[2], burst = numbers[3], most = numbers[3] }
  end

  function LeakyBucket.earliest(key, rule, at, cost)
    if cost > rule.burst then return math.huge end
    local tat, part = read(key)
    return tat and timeFor(rule, tat, part, at, cost) or at
  end

  function LeakyBucket.count(key, rule, at, cost)
    local tat, part, last = read(key)
    if not tat or tat < at then tat, part = at, 0 end
    tat, part = move(rule, tat, part, cost)
    return write(key, tat, part, math.max(last or at, at))
  end

  function LeakyBucket.refuse(key, rule, at, cost)
    local tat, part, last = read(key)
    local after, rest = at, 0
    if tat and tat >= at then after, rest = tat, part end
    after, rest = move(rule, after, rest, cost)
    local full, fullRest = move(rule, at, 0, rule.burst)
    if after > full or (after == full and rest > fullRest) then after, rest = full, fullRest end
    if tat and (tat > after or (tat == after and part > rest)) then after, rest = tat, part end
    return write(key, after, rest, math.max(last or at, at))
  end

  -- Only the newest: what came later may have found the bucket empty, and counts from its own time.
  function LeakyBucket.uncount(key, rule, at, cost)
    local tat, part, last = read(key)
    if not tat or last ~= at then return end
    tat, part = move(rule, tat, part, -cost)
    write(key, math.max(0, tat), part, last)
  end

  function LeakyBucket.status(key, rule, at)
    local tat, part = read(key)
    if not tat or tat < at then return rule.burst, at end
    local filled = ((tat - at) * rule.limit + part) / rule.per
    local remaining = math.min(rule.burst, math.max(0, rule.burst - math.ceil(filled)))
    -- The division may be off by a hair; the schedule is not.
    while remaining < rule.burst and timeFor(rule, tat, part, at, remaining + 1) <= at do remaining = remaining + 1 end
    while remaining > 0 and timeFor(rule, tat, part, at, remaining) > at do remaining = remaining - 1 end
    return remaining, whole(tat, part)
  end

  function LeakyBucket.newest(key)
    local _, _, last = read(key)
    return last
  end

  function LeakyBucket.shift(key, rule, by)
    local tat, part, last = read(key)
    return write(key, math.max(0, tat - by), part, math.max(0, last - by))
  end
end
