-- Fixed windows: one counter for each period of the calendar (UTC; aligned to the epoch), as in many gateways.
--
-- Rule     fixed-window:<limit>:<per>
-- Promise  never more than limit in one window of the calendar; across the edge of two, up to twice as many at once
-- State    string "<start> <count>" of the newest window
-- Memory   one string of at most 33 bytes
-- Time     O(1)
local FixedWindow = {}
do
  -- The newest window, or the one of `at` where that is newer.
  local function read(key, rule, at)
    local window = at - at % rule.per
    local start, count = string.match(call('GET', key) or '', '^(%d+) (%d+)$')
    if not start or tonumber(start) < window then return window, 0 end
    return tonumber(start), tonumber(count)
  end

  local function write(key, rule, start, count)
    call('SET', key, micros(start) .. ' ' .. micros(count), 'KEEPTTL')
    return start + rule.per
  end

  function FixedWindow.rule(numbers) return { limit = numbers[1], per = numbers[2], most = numbers[1] } end

  function FixedWindow.earliest(key, rule, at, cost)
    if cost > rule.limit then return math.huge end
    local start, count = read(key, rule, at)
    if count + cost <= rule.limit then return math.max(at, start) end
    return start + rule.per
  end

  function FixedWindow.count(key, rule, at, cost)
    local start, count = read(key, rule, at)
    return write(key, rule, start, count + cost)
  end
  FixedWindow.refuse = FixedWindow.count

  function FixedWindow.uncount(key, rule, at, cost)
    local start, count = read(key, rule, at)
    if count > 0 and start == at - at % rule.per then write(key, rule, start, math.max(0, count - cost)) end
  end

  function FixedWindow.status(key, rule, at)
    local start, count = read(key, rule, at)
    return math.max(0, rule.limit - count), count > 0 and start + rule.per or at
  end

  function FixedWindow.newest(key, rule)
    local start, count = read(key, rule, 0)
    return count > 0 and start or nil
  end

  function FixedWindow.shift(key, rule, by)
    local start, count = read(key, rule, 0)
    local at = math.max(0, start - by)
    return write(key, rule, at - at % rule.per, count)
  end
end
