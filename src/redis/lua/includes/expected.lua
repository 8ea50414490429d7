-- When a call of that cost with `ahead` others before it will start, if nothing changes, and if they cost what the last
-- ones did on average. A lower bound where rules interact.
local function expectedSlot(g, now, ahead, own)
  own = own or 1
  local first, tat, part = nextSlot(g, now, own), arrival(g), g.part
  if tat > g.tat then part = 0 end
  if first > tat then tat, part = first, 0 end
  local cost = math.floor(ahead * math.max(1, g.mean))
  local slot = math.max(first, tat + advance(g, part, g.weighed and cost or ahead) - g.tau + excessOf(g, own))
  for _, window in ipairs(g.windows) do
    local units = window.weighed and cost or ahead
    local rounds, rest = math.floor(units / window.limit), units % window.limit
    local leaves
    if window.weighed then
      leaves = costs().room(g, window, rest + own)
    else
      local rank = -(window.limit - rest)
      leaves = tonumber(call('ZRANGE', base .. 'log', rank, rank, 'WITHSCORES')[2] or 0) + window.cycle
    end
    slot = math.max(slot, math.max(first, leaves) + rounds * window.cycle)
  end
  for _, one in ipairs(g.classic) do
    local units, most = (one.weighed and cost or ahead), one.rule.most
    local rest = math.min(units % most + 1, most)
    slot = math.max(slot, one.X.earliest(one.key, one.rule, first, rest) + math.floor(units / most) * one.cycle)
  end
  return slot
end
