-- BullMQ's score of a delayed job is 4096 times its time in ms, and a count.
local function delayedScore(t) return math.floor(t / 1000) * 4096 end
