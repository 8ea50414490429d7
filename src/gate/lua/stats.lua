-- What a bucket looks like now.
--
-- KEYS[1]  gate hash
-- ARGV[1]  now in µs, '' for the server's time
-- Reply    { 'OK', now, depth, waiting, active, in flight by permits, next slot, expected start of a new call, failed,
--            idle workers, gate fields as a flat list, share of the rate in force, to be redelivered later,
--            what the next call, of the cost that it has, waits for: '', 'rate', 'closed', 'concurrency', or the text of a
--            rule } or { 'UNDECLARED' }
-- O(log n)
--- @include "gate"
--- @include "expected"
--- @include "ranks"
local now = clock(ARGV[1])
local g = load(now)
if not g then return { 'UNDECLARED' } end
local waiting = waitingCalls(g)
local why = {}
local head = nextCall()
local first = nextSlot(g, now, tonumber(head and call('HGET', base .. head, 'w') or 1), why)
local flights = call('ZCOUNT', base .. 'inflight', micros(now), '+inf')
if not why.name and g.concurrency > 0 and flights >= g.concurrency then why.name = 'concurrency' end
return {
  'OK', micros(now), occupied(g, now), waiting, call('LLEN', base .. 'active'),
  flights, micros(first),
  micros(expectedSlot(g, now, waiting)), call('ZCARD', base .. 'failed'), call('ZCARD', base .. 'idle'),
  call('HGETALL', KEYS[1]), tostring(g.share),
  call('ZCARD', base .. 'delayed'), why.name or '',
}
