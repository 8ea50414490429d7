-- BullMQ's scripts tell each step of each job to an event stream, up to five times a call. Nobody here reads it.
local quiet = {
  call = function(command, ...)
    if command ~= 'XADD' and command ~= 'XTRIM' then return call(command, ...) end
  end,
}
