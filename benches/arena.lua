-- Requests of a file for wrk: -- FILE. A file of more than one request is sent by turns, one at a time.
--
-- The file has requests as they go over the wire, with a byte of zero between them. A request may end with others behind it,
-- which are then pipelined.

local requests = {}
local turn = 0

function init(args)
   local file = assert(io.open(args[1], "rb"))
   local text = file:read("*a")
   file:close()
   for one in text:gmatch("[^%z]+") do
      requests[#requests + 1] = one
   end
   if #requests == 1 then
      -- As long as no global `request` is defined, wrk asks once, and no Lua runs while the load does.
      wrk.format = function() return requests[1] end
      return
   end
   function request()
      turn = turn % #requests + 1
      return requests[turn]
   end
end

function done(summary)
   local errors = summary.errors
   io.write(string.format(
      'load-result {"requests": %d, "connect": %d, "read": %d, "write": %d, "timeout": %d, "status": %d}\n',
      summary.requests, errors.connect, errors.read, errors.write, errors.timeout, errors.status))
end
