-- The classic rate limiting algorithms, each a table of the same functions on one Redis key. None reads the clock: times
-- are whole µs of whatever clock the caller goes by, and rules are read from the text that `encodeRule` writes:
-- the algorithm's name and its numbers, with colons between.
--
--   X.rule(numbers)                      the rule as a table; `most` is the largest cost that can ever fit
--   X.earliest(key, rule, at, cost)      the earliest time >= at at which the cost fits if nothing else comes; math.huge
--                                        for never. Reads only. Never before what is counted already allows it, also
--                                        where that lies behind `at` (reserved slots, clocks that were set back).
--   X.count(key, rule, at, cost, now)    counts it at `at`, which may lie in the future: a reserved slot. What may still
--                                        be asked about times from `now` on is kept (math.huge: nothing is ever uncounted).
--   X.refuse(key, rule, at, cost)        counts a refused call. It never makes a bucket fuller than full.
--   X.uncount(key, rule, at, cost)       takes back what was counted at `at`. Where the state cannot tell what would have
--                                        been without it, nothing happens: never more than the rule is allowed.
--   X.status(key, rule, at)              how much fits at `at`, and when the key is as good as new
--   X.used(key, rule, at)                only where `most` less what fits does not tell it: how much counts, and may at most
--   X.newest(key, rule)                  a time that the clock has reached when it was last used for sure, or nil
--   X.shift(key, rule, by)               the clock was set back: everything is as far ahead of the new one as it was before
--   X.exact                              true where a call with an older time is judged and counted at its own time;
--                                        with the others it has to be brought to `newest`
--
-- count, refuse and shift return the time at which the key may go; the caller has it expire (`expireAt`).
--- @include "clock"
--- @include "leaky-bucket"
--- @include "token-bucket"
--- @include "fixed-window"
--- @include "sliding-log"
--- @include "sliding-window-counter"
--- @include "sliding-window"
local ALGORITHMS = {
  ['leaky-bucket'] = LeakyBucket,
  ['token-bucket'] = TokenBucket,
  ['fixed-window'] = FixedWindow,
  ['sliding-log'] = SlidingLog,
  ['sliding-window-counter'] = SlidingWindowCounter,
  ['sliding-window'] = SlidingWindow,
}

-- The algorithm and the rule that a text stands for.
local function readRule(text)
  local name, list = string.match(text, '^([%a-]+):([%d:]+)$')
  local numbers = {}
  for number in string.gmatch(list, '%d+') do numbers[#numbers + 1] = tonumber(number) end
  return ALGORITHMS[name], ALGORITHMS[name].rule(numbers)
end

-- Lets a key go at `at`, on a clock that reads `now`; after ten years in any case.
local function expireAt(key, at, now)
  call('PEXPIRE', key, micros(math.min(math.max(1, math.ceil((at - now) / 1000)), 315360000000)))
end
