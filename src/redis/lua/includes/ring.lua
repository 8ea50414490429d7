-- Counts per interval in a ring: a hash of at most `slots` fields for each kind of count, however many intervals pass. The
-- number of an interval is its time divided by its length, counted from the epoch; a field holds "<number> <count>", so that
-- what an earlier revolution left there is written over and never counted.

local function ringField(slots, number, kind) return kind .. micros(number % slots) end

-- O(1)
local function ringAdd(key, slots, number, n, kind)
  local field = ringField(slots, number, kind)
  local at, count = string.match(call('HGET', key, field) or '', '^(%d+) (%d+)$')
  at = tonumber(at or -1)
  -- Older than the ring reaches back.
  if at > number then return end
  call('HSET', key, field, micros(number) .. ' ' .. micros(at == number and count + n or n))
end

-- Calls `see(number, count)` for the intervals from `first` to `last`. O(intervals).
local function ringEach(key, slots, first, last, kind, see)
  first = math.max(first, last - slots + 1, 0)
  while first <= last do
    local fields = {}
    local upto = math.min(last, first + 999)
    for number = first, upto do fields[#fields + 1] = ringField(slots, number, kind) end
    for i, value in ipairs(call('HMGET', key, unpack(fields))) do
      local at, count = string.match(value or '', '^(%d+) (%d+)$')
      if at and tonumber(at) == first + i - 1 then see(tonumber(at), tonumber(count)) end
    end
    first = upto + 1
  end
end
