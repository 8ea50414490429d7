-- Token bucket, refilled in steps, as in Smyte's rate limiter (2016).
--
-- Rule     token-bucket:<max>:<refillTime>:<refillAmount>: starts full; every refillTime, refillAmount tokens come in, up
--          to max. The steps count from the call that found the bucket full (its phase), and keep to that until it is
--          full again: a bucket nobody remembers is a full one.
-- Promise  never more than max + refillAmount · (floor(t/refillTime) + 1) in any stretch of time t
-- State    string "<tokens> <mark> <last>": tokens at the last step, when that was, and the newest time counted
-- Memory   one string of at most 44 bytes
-- Time     O(1)
local TokenBucket = {}
do
  local function write(key, rule, amount, mark, last)
    call('SET', key, table.concat({ micros(amount), micros(mark), micros(last) }, ' '), 'KEEPTTL')
    return mark + math.ceil((rule.max - amount) / rule.refill) * rule.time + 1
  end

  local function stored(key)
    local amount, mark, last = string.match(call('GET', key) or '', '^(%d+) (%d+) (%d+)$')
    if amount then return tonumber(amount), tonumber(mark), tonumber(last) end
  end

  -- Tokens, the last step and the newest time, with the refills up to `at`.
  local function read(key, rule, at)
    local amount, mark, last = stored(key)
    if not amount then return rule.max, at, at end
    if at > mark then
      local steps = math.floor((at - mark) / rule.time)
      amount = math.min(rule.max, amount + steps * rule.refill)
      mark = amount == rule.max and at or mark + steps * rule.time
    end
    return amount, mark, last
  end

  function TokenBucket.rule(numbers)
    return { max = numbers[1], time = numbers[2], refill = numbers[3], most = numbers[1] }
  end

  function TokenBucket.earliest(key, rule, at, cost)
    if cost > rule.max then return math.huge end
    local amount, mark = read(key, rule, at)
    if amount >= cost then return math.max(at, mark) end
    return mark + math.ceil((cost - amount) / rule.refill) * rule.time
  end

  -- A cost that does not fit takes what there is.
  function TokenBucket.count(key, rule, at, cost)
    local amount, mark, last = read(key, rule, at)
    return write(key, rule, math.max(0, amount - cost), mark, math.max(last, at))
  end
  TokenBucket.refuse = TokenBucket.count

  -- The strict mode: the time to the next refill starts anew.
  function TokenBucket.delay(key, rule, at)
    local amount, mark, last = read(key, rule, at)
    return write(key, rule, amount, math.max(mark, at), math.max(last, at))
  end

  -- Only the newest: a bucket that was full in between has lost what would have flowed over.
  function TokenBucket.uncount(key, rule, at, cost)
    local amount, mark, last = stored(key)
    if amount and last == at then write(key, rule, math.min(rule.max, amount + cost), mark, last) end
  end

  function TokenBucket.status(key, rule, at)
    local amount, mark = read(key, rule, at)
    return amount, math.max(at, mark + math.ceil((rule.max - amount) / rule.refill) * rule.time)
  end

  function TokenBucket.newest(key)
    local _, mark, last = stored(key)
    return last and math.max(mark, last)
  end

  function TokenBucket.shift(key, rule, by)
    local amount, mark, last = stored(key)
    return write(key, rule, amount, math.max(0, mark - by), math.max(0, last - by))
  end
end
