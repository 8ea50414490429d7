-- Sliding window of counters: the window consists of equal buckets (60, unless told otherwise), the current one included
-- (Figma, "An alternative approach to rate limiting", 2017).
--
-- Rule     sliding-window-counter:<limit>:<per>:<buckets>
-- Promise  never more than limit in any window of per · (buckets - 1)/buckets, and in any `buckets` buckets of the calendar:
--          a call is forgotten when its bucket leaves the window, up to one bucket early
-- State    hash of bucket number (counted from the epoch) to count
-- Memory   one small field for each bucket in use: about 0.6 KB for 60
-- Time     O(buckets)
local SlidingWindowCounter = {}
do
  -- Periods need not be a multiple of buckets in µs: numbers start anew with each period. All products stay below 2^53.
  local function bucketOf(rule, at)
    local rest = at % rule.per
    return (at - rest) / rule.per * rule.buckets + math.floor(rest * rule.buckets / rule.per)
  end

  local function startOf(rule, bucket)
    local rest = bucket % rule.buckets
    return (bucket - rest) / rule.buckets * rule.per + math.ceil(rest * rule.per / rule.buckets)
  end

  -- Buckets that a window which ends at `at` sees, and later ones; the oldest first.
  local function read(key, rule, at)
    local entries, sum = {}, 0
    local unseen = bucketOf(rule, at) - rule.buckets
    local fields = call('HGETALL', key)
    for i = 1, #fields, 2 do
      local entry = { bucket = tonumber(fields[i]), count = tonumber(fields[i + 1]) }
      if entry.bucket > unseen then
        entries[#entries + 1] = entry
        sum = sum + entry.count
      end
    end
    table.sort(entries, function(a, b) return a.bucket < b.bucket end)
    return entries, sum
  end

  local function untilOf(key, rule)
    local newest = 0
    for _, bucket in ipairs(call('HKEYS', key)) do newest = math.max(newest, tonumber(bucket)) end
    return startOf(rule, newest + rule.buckets)
  end

  function SlidingWindowCounter.rule(numbers)
    return { limit = numbers[1], per = numbers[2], buckets = numbers[3], most = numbers[1] }
  end

  function SlidingWindowCounter.earliest(key, rule, at, cost)
    if cost > rule.limit then return math.huge end
    local entries, sum = read(key, rule, at)
    local earliest = at
    for _, entry in ipairs(entries) do
      if sum + cost <= rule.limit then break end
      sum = sum - entry.count
      earliest = math.max(at, startOf(rule, entry.bucket + rule.buckets))
    end
    return earliest
  end

  function SlidingWindowCounter.count(key, rule, at, cost, now)
    local unseen = bucketOf(rule, math.min(at, now or at)) - rule.buckets
    for _, bucket in ipairs(call('HKEYS', key)) do
      if tonumber(bucket) <= unseen then call('HDEL', key, bucket) end
    end
    call('HINCRBY', key, micros(bucketOf(rule, at)), cost)
    return untilOf(key, rule)
  end
  SlidingWindowCounter.refuse = SlidingWindowCounter.count

  function SlidingWindowCounter.uncount(key, rule, at, cost)
    local bucket = micros(bucketOf(rule, at))
    local count = tonumber(call('HGET', key, bucket) or 0)
    if count > cost then call('HINCRBY', key, bucket, -cost) else call('HDEL', key, bucket) end
  end

  function SlidingWindowCounter.status(key, rule, at)
    local entries, sum = read(key, rule, at)
    local newest = entries[#entries]
    return math.max(0, rule.limit - sum), newest and startOf(rule, newest.bucket + rule.buckets) or at
  end

  function SlidingWindowCounter.newest(key, rule)
    if call('EXISTS', key) == 1 then return untilOf(key, rule) - rule.per end
  end

  -- By whole buckets, so that all keep their distance to the newest.
  function SlidingWindowCounter.shift(key, rule, by)
    local newest = untilOf(key, rule) - rule.per
    local moved = bucketOf(rule, newest) - bucketOf(rule, math.max(0, newest - by))
    local fields = call('HGETALL', key)
    call('DEL', key)
    for i = 1, #fields, 2 do
      call('HSET', key, micros(math.max(0, tonumber(fields[i]) - moved)), fields[i + 1])
    end
    return untilOf(key, rule)
  end
end
