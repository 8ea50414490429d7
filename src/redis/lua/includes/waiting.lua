-- Whether any call waits: else, the end of a flight concerns nobody.
local function anyWaits() return call('LLEN', base .. 'wait') > 0 or call('EXISTS', base .. 'prioritized') == 1 end
