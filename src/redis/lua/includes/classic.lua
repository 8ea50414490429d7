-- The classic algorithms as rules of a gate, beside its rate and windows. Each keeps its state under a key of its own,
-- `rule:<text>`; `classic` in the gate holds the texts, a '$' before that of one which counts cost, spaces between.
-- All of them have the property that a call which fits at one time fits at any later one if nothing else comes, so the
-- earliest slot is found by asking them in turn.

--- @include "rules"

-- The time in which all that a rule allows at once comes anew.
local function cycleOf(rule)
  if rule.time then return math.ceil(rule.max / rule.refill) * rule.time end
  if rule.burst then return math.floor(rule.burst * rule.per / rule.limit) end
  return rule.per
end

local function readRules(texts)
  local rules = {}
  for cost, text in string.gmatch(texts, '(%$?)([%a%-]+:[%d:]+)') do
    local X, rule = readRule(text)
    rules[#rules + 1] = {
      X = X, rule = rule, key = base .. 'rule:' .. text, weighed = cost == '$', text = cost .. text, cycle = cycleOf(rule),
    }
  end
  return rules
end

local function unitsOf(one, cost) return one.weighed and cost or 1 end

-- What weighs more than ever fits waits until all of it is there; it counts with all that it weighs, so that the others
-- wait for it (a token bucket has no more to give than it holds).
local function classicSlot(one, slot, cost)
  return one.X.earliest(one.key, one.rule, slot, math.min(unitsOf(one, cost), one.rule.most))
end

-- Most rules cannot tell what would be without what they have counted. So what was before the first slot that lies far
-- ahead is kept until that comes, under `<key>:was`, with its time under `<key>:from`: all that is counted meanwhile lies
-- behind it.
local function keepClassic(one, now, slot, isFar)
  local from = tonumber(call('GET', one.key .. ':from') or 0)
  if slot < from then
    call('DEL', one.key .. ':from')
  elseif isFar and from <= now then
    call('DEL', one.key .. ':was')
    call('COPY', one.key, one.key .. ':was')
    call('SET', one.key .. ':from', micros(slot), 'PX', math.ceil((slot - now) / 1000))
  end
end

local function countClassic(g, now, slot, isFar, cost)
  for _, one in ipairs(g.classic) do
    keepClassic(one, now, slot, isFar)
    expireAt(one.key, one.X.count(one.key, one.rule, slot, unitsOf(one, cost), now), now)
  end
end

-- A slot that was taken before a rule came is not counted there.
local function uncountClassic(g, slot, cost)
  if slot <= g.ruledFrom then return end
  for _, one in ipairs(g.classic) do one.X.uncount(one.key, one.rule, slot, unitsOf(one, cost)) end
end

-- All slots that lie further ahead than `near` are taken back. Where a rule has counted nearer ones since, it stays as it is:
-- never more than it allows.
local function recallClassic(g, near)
  for _, one in ipairs(g.classic) do
    local from = tonumber(call('GET', one.key .. ':from') or 0)
    if from > near then
      if call('COPY', one.key .. ':was', one.key, 'REPLACE') == 0 then call('DEL', one.key) end
      call('DEL', one.key .. ':from', one.key .. ':was')
    end
  end
end

-- The clock was set back.
local function shiftClassic(g, by)
  for _, one in ipairs(g.classic) do
    call('DEL', one.key .. ':from', one.key .. ':was')
    if call('EXISTS', one.key) == 1 then expireAt(one.key, one.X.shift(one.key, one.rule, by), g.now) end
  end
end

return {
  readRule = readRule, expireAt = expireAt, read = readRules, slot = classicSlot, count = countClassic,
  uncount = uncountClassic, recall = recallClassic, shift = shiftClassic,
}
