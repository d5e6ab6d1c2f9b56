-- Pipelined load for wrk: -- DEPTH [TARGET [reversed]]
--
-- wrk asks `wrk.format` for its request once, as long as no global `request` is defined. So the whole run of DEPTH
-- requests is built here, once, and no Lua runs while the load does. `wrk.headers` would have no fixed order.

local headers = {
   "Host: localhost",
   "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
   "Connection: keep-alive",
}

local function reversed(list)
   local result = {}
   for i = #list, 1, -1 do
      result[#result + 1] = list[i]
   end
   return result
end

function init(args)
   local depth = tonumber(args[1])
   local target = args[2] or "/plaintext"
   local lines = args[3] == "reversed" and reversed(headers) or headers
   local one = "GET " .. target .. " HTTP/1.1\r\n" .. table.concat(lines, "\r\n") .. "\r\n\r\n"
   local run = one:rep(depth)
   wrk.format = function()
      return run
   end
end

function done(summary)
   local errors = summary.errors
   io.write(string.format(
      'load-result {"requests": %d, "connect": %d, "read": %d, "write": %d, "timeout": %d, "status": %d}\n',
      summary.requests, errors.connect, errors.read, errors.write, errors.timeout, errors.status))
end
