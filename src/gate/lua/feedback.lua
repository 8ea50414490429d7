-- What a server has said to one process holds for all of them.
--
-- KEYS[1]  gate hash
-- ARGV[1]  now in µs, '' for the server's time
-- ARGV[2]  pause in µs, or ''; never shortens a longer one
-- ARGV[3]  reason of the pause
-- ARGV[4]  adaptive: start of a call that was refused, in µs, or ''
-- ARGV[5]  learn: windows that the server names, as in `rules` (N/µs, comma between them), or ''
-- ARGV[6]  learn: for how long they hold, in µs
-- ARGV[7]  '1' when the server has refused the call
-- Reply    { 'OK', now, paused until in µs or 0, share of the rate in force, 0 to 1 } or { 'UNDECLARED' }
-- O(1)
--- @include "gate"
--- @include "announce"
local now = clock(ARGV[1])
local g = load(now)
if not g then return { 'UNDECLARED' } end
local pause, refused, learned = tonumber(ARGV[2]), tonumber(ARGV[4]), ARGV[5]
local LEAST = 1 / 64

if ARGV[7] == '1' then
  usage().note(g, now, 1, usage().THROTTLED)
  -- Nothing else to say: nobody need look again.
  if not pause and not refused and learned == '' then return { 'OK', micros(now), '0', tostring(g.share) } end
end

if pause and now + pause > g.pausedUntil then
  g.pausedUntil = now + pause
  call('HSET', KEYS[1], 'pausedUntil', micros(g.pausedUntil), 'pauseReason', ARGV[3])
end
-- All calls that were under way when the rate was halved may be refused as well: they are one sign of congestion, not
-- many (RFC 6582, 3.2).
if refused and refused > g.slowAt then
  g.share = math.max(LEAST, g.share / 2)
  call('HSET', KEYS[1], 'slow', string.format('%.6f', g.share), 'slowAt', micros(now))
end
if learned ~= '' then call('HSET', KEYS[1], 'learned', learned, 'learnedUntil', micros(now + tonumber(ARGV[6]))) end
announce(g, now)
return { 'OK', micros(now), micros(g.pausedUntil > now and g.pausedUntil or 0), tostring(g.share) }
