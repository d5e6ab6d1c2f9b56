//! The scripts that run in Redis, one for each operation that must not be torn.
//!
//! | key | value |
//! |---|---|
//! | `PREFIX{.ROOM}:m` | hash: `e` the epoch, `o` the offset of the last message, `b` the bytes of the history |
//! | `PREFIX{.ROOM}:h` | list: the history; its last entry has the offset `o` |
//! | `PREFIX{.ROOM}:p` | hash: the members of each node, behind the time at which the lease ends |
//! | `PREFIX{.ROOM}:k` | string: the last kick, behind the milliseconds that it lasts |
//!
//! A message of the history is published as `@EPOCH-OFFSET`, a line feed and the message; another one as it is. Both keys of a
//! room belong to one slot of a cluster. Fields of the hash that no script has written are those of no room: the next message
//! begins an epoch. A key that another program has made, with a value of another type, counts as none, and the next message
//! replaces it; the reply says so. Any other error ends the script, and is its reply. Redis refuses a script that writes
//! before its first write, or not at all, when it has no memory left: so none stops half-way.

use std::sync::LazyLock;

use tidegate_redis::Script;

/// Keys: hash, history. Arguments: channel, epoch of a new room, bounds of the history in messages and bytes, seconds that an
/// unused room lasts, `1` if its keys were made to last a short while ago; then, for each message, `1` if it is kept, and its bytes. The reply is the number of foreign keys.
pub(super) static PUBLISH: LazyLock<Script> = LazyLock::new(|| Script::new(PUBLISH_SOURCE));

/// Keys: hash, history. Arguments: the epoch and the offset of the first message that is wanted, the bytes after which a page ends, and
/// those of the longest entry. The reply has the epoch, the last offset, the offset of the first entry, and the entries of a page;
/// or, of a foreign key, `foreign`. A longer entry ends the history before it.
pub(super) static READ: LazyLock<Script> = LazyLock::new(|| Script::new(READ_SOURCE));

/// Keys: the hash of each room. Arguments: node, lease in milliseconds, `0` without lists, `1` with lists, `2` for a further page,
/// which records nothing; the bytes after which a page ends, those of the longest list, and the node after which the first room goes
/// on; then, unless this is a further page, for each room, channel, `1` with a list, the list, `1` with a message, the message. The
/// reply has, for each room of the page, node, milliseconds and list in turn, and `kick`, the milliseconds since the last kick, and
/// its bytes; last, the node after which the last room goes on, the server's time in milliseconds, and the number of foreign keys. A
/// room is whole if the node is empty. The milliseconds of a kick are those of the server's clock: fewer than none if it was set back.
pub(super) static PRESENCE: LazyLock<Script> = LazyLock::new(|| Script::new(PRESENCE_SOURCE));

/// The source of [`PUBLISH`]. Each command costs: RPUSH has the length of the history, and keys that were made to last a short
/// while ago are not made to again, unless they are new.
pub(super) const PUBLISH_SOURCE: &str = r"
local meta = redis.pcall('HMGET', KEYS[1], 'e', 'o', 'b')
local foreign = 0
if meta['err'] then
  if not string.find(meta['err'], 'WRONGTYPE', 1, true) then return meta end
  foreign = 1
  redis.call('UNLINK', KEYS[1])
end
local epoch, offset, bytes = meta[1], meta[2], tonumber(meta[3]) or 0
local is_ours = epoch and #epoch == 16 and not string.find(epoch, '%X')
offset = is_ours and offset and #offset < 16 and not string.find(offset, '%D') and tonumber(offset)
local lasts = ARGV[6] == '1'
local length = 0
for at = 7, #ARGV, 2 do
  local message = ARGV[at + 1]
  if ARGV[at] == '1' then
    length = redis.pcall('RPUSH', KEYS[2], message)
    if type(length) == 'table' then
      if not string.find(length['err'], 'WRONGTYPE', 1, true) then return length end
      foreign = foreign + 1
      offset = false
    end
    if not offset then
      redis.call('UNLINK', KEYS[2])
      length = redis.call('RPUSH', KEYS[2], message)
      epoch, offset, bytes = ARGV[2], 0, 0
    end
    if length == 1 then bytes, lasts = 0, false end
    offset = offset + 1
    bytes = bytes + #message
    message = '@' .. epoch .. '-' .. string.format('%.0f', offset) .. '\n' .. message
  end
  redis.call('PUBLISH', ARGV[1], message)
end
local length_max, bytes_max = tonumber(ARGV[3]), tonumber(ARGV[4])
while length > 0 and (length > length_max or bytes > bytes_max) do
  bytes = bytes - #redis.call('LPOP', KEYS[2])
  length = length - 1
  if length == 0 then bytes = 0 end
end
if offset then
  redis.call('HSET', KEYS[1], 'e', epoch, 'o', string.format('%.0f', offset), 'b', string.format('%.0f', bytes))
end
if not lasts then
  redis.call('EXPIRE', KEYS[1], ARGV[5])
  redis.call('EXPIRE', KEYS[2], ARGV[5])
end
return foreign
";

/// The source of [`READ`].
pub(super) const READ_SOURCE: &str = r"
local meta = redis.pcall('HMGET', KEYS[1], 'e', 'o')
local length = redis.pcall('LLEN', KEYS[2])
local failed = meta['err'] and meta or type(length) == 'table' and length
if failed then return string.find(failed['err'], 'WRONGTYPE', 1, true) and {'foreign'} or failed end
local epoch, offset = meta[1], meta[2]
local is_ours = epoch and #epoch == 16 and not string.find(epoch, '%X')
offset = is_ours and offset and #offset < 16 and not string.find(offset, '%D') and tonumber(offset)
if not offset then return {} end
local first = offset - length + 1
local skipped = 0
if ARGV[1] == epoch and tonumber(ARGV[2]) > first then skipped = tonumber(ARGV[2]) - first end
local page_max, entry_max = tonumber(ARGV[3]), tonumber(ARGV[4])
local entries, size, at = {}, 0, skipped
while at < length and size < page_max do
  local some = redis.call('LRANGE', KEYS[2], at, at + 15)
  for _, entry in ipairs(some) do
    at = at + 1
    if #entry > entry_max then
      entries, size, skipped = {}, 0, at
    else
      entries[#entries + 1] = entry
      size = size + #entry + 64
      if size >= page_max then break end
    end
  end
end
return {epoch, string.format('%.0f', offset), string.format('%.0f', first + skipped), entries}
";

/// The source of [`PRESENCE`]. A lease that is longer than leases are comes from a clock that was set back. Nodes come in the order of
/// their numbers, which are those of [`NodeId`](tidegate_engine::NodeId): so a further page knows where it goes on.
pub(super) const PRESENCE_SOURCE: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local lease = tonumber(ARGV[2])
local records, reads = ARGV[3] ~= '2', ARGV[3] ~= '0'
local page_max, list_max, after = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
local replies, size, stopped = {}, 0, ''
local foreign = 0
for room, key in ipairs(KEYS) do
  local length = redis.pcall('HLEN', key)
  local is_foreign = type(length) == 'table'
  if is_foreign then
    if not string.find(length['err'], 'WRONGTYPE', 1, true) then return length end
    length = 0
  end
  if records then
    local at = 7 + (room - 1) * 5
    if is_foreign then foreign = foreign + 1 end
    if ARGV[at + 1] == '1' then
      if is_foreign then redis.call('UNLINK', key) end
      is_foreign = false
      redis.call('HSET', key, ARGV[1], string.format('%.0f', now + lease) .. ':' .. ARGV[at + 2])
      redis.call('PEXPIRE', key, lease)
    elseif not is_foreign then
      redis.call('HDEL', key, ARGV[1])
    end
    if ARGV[at + 3] == '1' then redis.call('PUBLISH', ARGV[at], ARGV[at + 4]) end
  end
  if reads and size < page_max and stopped == '' then
    local reply, names, values = {}, {}, {}
    if length > 15 then
      names = redis.call('HKEYS', key)
    elseif not is_foreign then
      local fields = redis.call('HGETALL', key)
      for field = 1, #fields, 2 do
        names[#names + 1] = fields[field]
        values[fields[field]] = fields[field + 1]
      end
    end
    table.sort(names)
    for place, name in ipairs(names) do
      local is_node = #name == 32 and not string.find(name, '[^0-9a-f]')
      if not is_node then
        redis.call('HDEL', key, name)
      elseif name > after then
        if size >= page_max then
          stopped = reply[#reply - 2]
          break
        end
        if not values[name] then
          values = {}
          local last = math.min(place + 15, #names)
          local some = redis.call('HMGET', key, unpack(names, place, last))
          for number = place, last do values[names[number]] = some[number - place + 1] or '' end
        end
        local value = values[name]
        local colon = string.find(value, ':', 1, true)
        local left = (colon and tonumber(string.sub(value, 1, colon - 1)) or 0) - now
        if left > 0 and left <= lease then
          if #value > list_max then value = string.sub(value, 1, colon + 16) end
          reply[#reply + 1] = name
          reply[#reply + 1] = string.format('%.0f', left)
          reply[#reply + 1] = string.sub(value, colon + 1)
          size = size + #value + 128
        else
          redis.call('HDEL', key, name)
        end
      end
    end
    after = ''
    if stopped == '' then
      local kick_key = string.sub(key, 1, -2) .. 'k'
      local kick = redis.pcall('GET', kick_key)
      if type(kick) == 'table' then
        if not string.find(kick['err'], 'WRONGTYPE', 1, true) then return kick end
        foreign = foreign + 1
      end
      local colon = type(kick) == 'string' and #kick <= list_max and string.find(kick, ':', 1, true)
      local lasts = colon and tonumber(string.sub(kick, 1, colon - 1))
      local age = lasts and lasts - redis.call('PTTL', kick_key)
      if age then
        reply[#reply + 1] = 'kick'
        reply[#reply + 1] = string.format('%.0f', age)
        reply[#reply + 1] = string.sub(kick, colon + 1)
        size = size + #kick + 64
      end
    end
    size = size + 16
    replies[room] = reply
  end
end
replies[#replies + 1] = stopped
replies[#replies + 1] = string.format('%.0f', now)
replies[#replies + 1] = foreign
return replies
";
