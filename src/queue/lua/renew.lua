-- Keeps alive what one process holds in a bucket: the lease on its waiting permits, the locks on its durable calls, and
-- the places of its requests in flight.
--
-- KEYS[1]  gate hash
-- ARGV[1]  now in µs, '' for the server's time
-- ARGV[2]  channel of the process
-- ARGV[3]  lease in µs
-- ARGV[4]  number of waiting permits
-- ARGV[5]  number of flights (ids only)
-- ARGV[6]  number of locks (id, token)
-- ARGV[7…] ids of the permits, ids of the flights, pairs of the locks
-- Reply    { 'OK', now, { permits that no longer wait… }, { calls whose lock is lost… } }
-- O(ids), and O(active) for a lock that ran out
--- @include "gate"
local now = clock(ARGV[1])
local lease = tonumber(ARGV[3])
local permits, flights, locks = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local at = 7
local missing, lost = {}, {}
if permits > 0 then
  call('ZADD', base .. 'leases', now + lease, ARGV[2])
  local g = load(now)
  if g then age(g, 'leases') end
end
for _ = 1, permits do
  if call('EXISTS', base .. ARGV[at]) == 0 then missing[#missing + 1] = ARGV[at] end
  at = at + 1
end
for _ = 1, flights do
  call('ZADD', base .. 'inflight', 'XX', now + lease, ARGV[at])
  at = at + 1
end
for _ = 1, locks do
  local id, token = ARGV[at], ARGV[at + 1]
  local holder = call('GET', base .. id .. ':lock')
  -- It ran out while Redis was away or this process was busy. Nobody has taken the call since, so it is still ours.
  if not holder and call('LPOS', base .. 'active', id) then holder = token end
  if holder == token then
    call('SET', base .. id .. ':lock', token, 'PX', math.floor(lease / 1000))
    call('SREM', base .. 'stalled', id)
    call('ZADD', base .. 'inflight', 'XX', now + lease, id)
  else
    lost[#lost + 1] = id
  end
  at = at + 2
end
return { 'OK', micros(now), missing, lost }
