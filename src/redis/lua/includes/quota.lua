-- Quotas at the door (`admit`): how much each producer may bring in, by one of the classic algorithms. What a producer has
-- used is kept under `quota:<rule>:<producer>`, and goes by itself.

-- From the rule's text, with marks before it: '$' cost is counted, '!' strict, '+' refused calls count.
local function openQuota(encoded, now)
  local marks, text = string.match(encoded, '^([$!+]*)(.*)$')
  local expireAt = classic().expireAt
  local X, rule = classic().readRule(text)
  local function isMarked(mark) return string.find(marks, mark, 1, true) ~= nil end
  local function unitsOf(cost) return isMarked('$') and cost or 1 end

  local quota, asked = {}, {}

  function quota.keyOf(producer) return base .. 'quota:' .. text .. ':' .. producer end

  -- The producer's key, and the time at which his calls count: not before the newest that he has used.
  local function open(producer)
    local key = quota.keyOf(producer)
    local newest = X.newest(key, rule)
    if not newest or newest <= now or X.exact then return key, now end
    if newest - now <= 1000000 then return key, newest end
    -- The clock was set back.
    expireAt(key, X.shift(key, rule, newest - now), now)
    return key, now
  end

  -- Whether one more fits, beside those that were asked for already; if not, also when it will, math.huge for never.
  function quota.ask(producer, cost)
    local key, at = open(producer)
    asked[producer] = (asked[producer] or 0) + unitsOf(cost)
    local earliest = X.earliest(key, rule, at, asked[producer])
    return earliest <= at, earliest
  end

  function quota.count(producer, cost)
    local key, at = open(producer)
    expireAt(key, X.count(key, rule, at, unitsOf(cost), math.huge), now)
    if isMarked('!') and X.status(key, rule, at) == 0 then expireAt(key, X.delay(key, rule, at), now) end
  end

  function quota.refuse(producer, cost)
    local key, at = open(producer)
    if isMarked('+') then expireAt(key, X.refuse(key, rule, at, unitsOf(cost)), now) end
    if isMarked('!') then expireAt(key, X.delay(key, rule, at), now) end
  end

  return quota
end

return { open = openQuota }
