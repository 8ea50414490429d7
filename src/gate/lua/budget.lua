-- Spends one retry of the bucket's budget: a token bucket that starts full and is refilled by first attempts and by time,
-- so that an outage is met with few retries more than there are calls (as in Finagle's RetryBudget).
--
-- KEYS[1]  gate hash
-- ARGV[1]  now in µs, '' for the server's time
-- ARGV[2]  retries that each first attempt allows
-- Reply    { 'OK', now, 1 if it may be retried, else 0 } or { 'UNDECLARED' }
-- O(1)
--- @include "gate"
local now = clock(ARGV[1])
local g = load(now)
if not g then return { 'UNDECLARED' } end
local MOST, MICROS_EACH = 100, 6000000 -- and ten a minute

local state = call('HMGET', KEYS[1], 'budget', 'budgetAt', 'budgetFirsts')
local tokens, at, firsts = tonumber(state[1] or MOST), tonumber(state[2] or now), tonumber(state[3] or g.firsts)
tokens = tokens + math.max(0, now - at) / MICROS_EACH + math.max(0, g.firsts - firsts) * tonumber(ARGV[2])
tokens = math.min(MOST, tokens)
local allowed = tokens >= 1 and 1 or 0
if allowed == 1 or at > now then
  call('HSET', KEYS[1], 'budget', string.format('%.6f', tokens - allowed), 'budgetAt', micros(now),
    'budgetFirsts', micros(g.firsts))
end
return { 'OK', micros(now), allowed }
