-- Pipelined load for wrk: -- DEPTH [TARGET [reversed | BODY-BYTES]]
--
-- wrk asks `wrk.format` for its request once, as long as no global `request` is defined. So the whole run of DEPTH
-- requests is built here, once, and no Lua runs while the load does. `wrk.headers` would have no fixed order. With
-- BODY-BYTES they are POST requests with so long a body.

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
   local length = tonumber(args[3])
   local one = (length and "POST " or "GET ") .. target .. " HTTP/1.1\r\n" .. table.concat(lines, "\r\n") .. "\r\n"
   if length then
      one = one .. "Content-Length: " .. length .. "\r\n\r\n" .. ("x"):rep(length)
   else
      one = one .. "\r\n"
   end
   local run = one:rep(depth)
   wrk.format = function()
      return run
   end
end

-- Two lines of JSON: what there was, and how long answers took, in microseconds.
function done(summary, latency)
   local errors = summary.errors
   io.write(string.format(
      'load-result {"requests": %d, "connect": %d, "read": %d, "write": %d, "timeout": %d, "status": %d}\n',
      summary.requests, errors.connect, errors.read, errors.write, errors.timeout, errors.status))
   io.write(string.format(
      'load-latency {"seconds": %f, "max": %d, "50": %d, "90": %d, "99": %d, "99.9": %d}\n',
      summary.duration / 1e6, latency.max, latency:percentile(50), latency:percentile(90), latency:percentile(99),
      latency:percentile(99.9)))
end
