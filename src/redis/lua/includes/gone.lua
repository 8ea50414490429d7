-- Is the process that asked for this permit gone? A subscription ends with its connection, so a killed process is known
-- at once; a machine that vanished, or any client of a cluster, is known by the lease that it no longer renews.
local alive = {}
local function isGone(g, client, now)
  if alive[client] == nil then
    local lease = tonumber(call('ZSCORE', base .. 'leases', client) or 0)
    alive[client] = lease > now and (g.cluster == '1' or call('PUBSUB', 'NUMSUB', client)[2] > 0)
  end
  return not alive[client]
end
