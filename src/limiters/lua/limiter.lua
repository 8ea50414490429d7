-- A classic limiter: takes from the allowance of one key, looks at it, or carries it over to another rule.
--
-- KEYS[1]  `<prefix>:limiter:{<key>}:block`, the manual block; each rule has its own key beside it, named by its text
-- ARGV[1]  'take' · 'peek' · 'migrate'
-- ARGV[2]  rule, as encodeRule writes it
-- ARGV[3]  now in µs as the caller has it, '' for the server's time
-- ARGV[4]  take, peek: cost · migrate: the rule under which the key has been used so far
-- ARGV[5]  take: '1' when a refused call counts · migrate: what the key of the old rule begins with, the same hash tag in it
-- ARGV[6]  take: '1' for strict: a refused call, or one that takes the last token, puts off the next refill
-- Reply    take, peek: { allowed (1/0), remaining, µs until it fits ('' = never), µs until the key is as good as new, reason }
--          the reason is that of a block, nil without one
--          migrate: { what was carried over }
-- As the rule: O(1), or O(buckets), or O(cost + rules · log limit)
--- @include "rules"
local REWIND_MICROS = 1000000
-- Who brings his own time may replay the past, slower than it was. The state is kept for that much longer.
local REPLAY_MICROS = 3600000000

local base = string.sub(KEYS[1], 1, -6)
local operation, now, injected = ARGV[1], clock(ARGV[3]), ARGV[3] ~= ''
local X, rule = readRule(ARGV[2])
local key = base .. ARGV[2]

local function keep(goes) expireAt(key, goes + (injected and REPLAY_MICROS or 0), now) end

-- The time at which a call counts. Time does not run backwards: a call with an older time is judged with the newest one.
-- But where the server's own clock was set back, or somebody gave a time from far ahead, the state moves back with it.
local function effective(Y, itsRule, itsKey)
  local newest = Y.newest(itsKey, itsRule)
  if not newest or newest <= now then return now end
  if not injected and newest - now > REWIND_MICROS then
    keep(Y.shift(itsKey, itsRule, newest - now))
    return now
  end
  return Y.exact and now or newest
end

-- How much counts, and how much may: a log of several rules holds more than fits at once.
local function usedOf(Y, itsRule, itsKey, when)
  if Y.used then return Y.used(itsKey, itsRule, when) end
  return itsRule.most - Y.status(itsKey, itsRule, when), itsRule.most
end

if operation == 'migrate' then
  local oldKey = ARGV[5] .. ARGV[4]
  if oldKey == key or call('EXISTS', oldKey) == 0 then return { 0 } end
  local Old, oldRule = readRule(ARGV[4])
  local used = usedOf(Old, oldRule, oldKey, math.max(now, Old.newest(oldKey, oldRule) or now))
  local at = effective(X, rule, key)
  local already, most = usedOf(X, rule, key, at)
  local carried = math.min(used, most - already)
  if carried > 0 then keep(X.count(key, rule, at, carried, math.huge)) end
  call('DEL', oldKey)
  return { carried }
end

local cost = tonumber(ARGV[4])
local at = effective(X, rule, key)
local blockedUntil, reason = string.match(call('GET', KEYS[1]) or '', '^(%d+) (.*)$')
blockedUntil = tonumber(blockedUntil or 0)
local blocked = blockedUntil > now

local earliest = X.earliest(key, rule, at, cost)
local fits = earliest <= at
if operation == 'take' and cost > 0 and not blocked then
  if fits then
    keep(X.count(key, rule, at, cost, math.huge))
  elseif ARGV[5] == '1' then
    keep(X.refuse(key, rule, at, cost))
  end
  if ARGV[6] == '1' and (not fits or X.status(key, rule, at) == 0) then keep(X.delay(key, rule, at)) end
  if not fits then earliest = X.earliest(key, rule, at, cost) end
end

local remaining, reset = X.status(key, rule, at)
local allowed = fits and not blocked
local wait = allowed and 0 or math.max(earliest, blockedUntil) - now
return {
  allowed and 1 or 0,
  micros(remaining),
  wait < math.huge and micros(wait) or '',
  micros(math.max(0, reset - now)),
  blocked and reason or false,
}
