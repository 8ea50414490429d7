-- Sliding window by estimate: the counter of this period, and that of the last one weighted by the share of it that the
-- window still covers, rounded down (Cloudflare, 2017; Kong). Checked before it counts.
--
-- Rule     sliding-window:<limit>:<per>
-- Promise  never more than limit in one window of the calendar, and about as many in any other as far as the calls
--          of the last were spread evenly; at worst (all at its end) up to twice as many
-- State    string "<start> <count> <count of the period before>"
-- Memory   one string of at most 50 bytes
-- Time     O(1)
local SlidingWindow = {}
do
  local EXACT_MICROS = 2 ^ 53

  local function stored(key)
    local start, count, before = string.match(call('GET', key) or '', '^(%d+) (%d+) (%d+)$')
    if start then return tonumber(start), tonumber(count), tonumber(before) end
  end

  local function roll(rule, start, count, before, window)
    if window <= start then return start, count, before end
    return window, 0, window == start + rule.per and count or 0
  end

  -- The newest period, or the one of `at` where that is newer.
  local function read(key, rule, at)
    local window = at - at % rule.per
    local start, count, before = stored(key)
    if not start then return window, 0, 0 end
    return roll(rule, start, count, before, window)
  end

  local function write(key, rule, start, count, before)
    call('SET', key, table.concat({ micros(start), micros(count), micros(before) }, ' '), 'KEEPTTL')
    return start + 2 * rule.per
  end

  local function weighted(rule, start, before, at)
    return math.floor(before * (start + rule.per - at) / rule.per)
  end

  function SlidingWindow.rule(numbers) return { limit = numbers[1], per = numbers[2], most = numbers[1] } end

  -- The first time in the period, from `at` on, at which the estimate of the last one leaves `room`, or nil.
  local function leaving(rule, start, before, room, at)
    if room < 0 then return nil end
    local time = math.max(at, start)
    if before > room then
      time = math.max(time, start + rule.per - math.ceil((room + 1) * rule.per / before) + 1)
      -- The division may be off by a hair; what counts is the estimate.
      while weighted(rule, start, before, time) > room do time = time + 1 end
    end
    return time < start + rule.per and time or nil
  end

  function SlidingWindow.earliest(key, rule, at, cost)
    if cost > rule.limit then return math.huge end
    local start, count, before = read(key, rule, at)
    while true do
      -- Slots of a gate that is paused until further notice: behind this, a µs more may be none, and nothing ever leaves.
      if start + rule.per > EXACT_MICROS then return math.max(at, start) end
      local time = leaving(rule, start, before, rule.limit - count - cost, at)
      if time then return time end
      start, count, before = roll(rule, start, count, before, start + rule.per)
    end
  end

  function SlidingWindow.count(key, rule, at, cost)
    local start, count, before = read(key, rule, at)
    return write(key, rule, start, count + cost, before)
  end
  SlidingWindow.refuse = SlidingWindow.count

  function SlidingWindow.uncount(key, rule, at, cost)
    local start, count, before = stored(key)
    if not start or at < start - rule.per or at >= start + rule.per then return end
    if at < start then write(key, rule, start, count, math.max(0, before - cost)) end
    if at >= start then write(key, rule, start, math.max(0, count - cost), before) end
  end

  function SlidingWindow.status(key, rule, at)
    local start, count, before = read(key, rule, at)
    local estimate = count + weighted(rule, start, before, math.max(at, start))
    local reset = count > 0 and start + 2 * rule.per or before > 0 and start + rule.per or at
    return math.max(0, rule.limit - estimate), reset
  end

  function SlidingWindow.newest(key) return (stored(key)) end

  function SlidingWindow.shift(key, rule, by)
    local start, count, before = stored(key)
    local at = math.max(0, start - by)
    return write(key, rule, at - at % rule.per, count, before)
  end
end
