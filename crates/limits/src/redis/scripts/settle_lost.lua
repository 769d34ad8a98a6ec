-- Ends what a request still holds that nobody ends any more, because its gateway was killed and has booked it since.
--
-- KEYS: the key of each concurrency counter, and a budget's with that of its holds.
-- ARGV: time; request id; wall ms; instance; number of its journal entry; journal entries kept as one; entries kept apart at
--   most; number of counters; for each its kind and
--     c
--     b  actual, ttl ms
-- Reply: how many holds were ended.
--
-- A budget books the entry where it ends a hold: what was ended before was booked then, and what has expired is read from
-- the ledger.

local id, wall, instance, seq, together, apart_max = text(), number(), text(), number(), number(), number()
local ended = 0

-- The request's members, whatever attempt they are of.
local function end_members(key_name)
  local found = {}
  for _, member in ipairs(redis.call('ZRANGE', key_name, 0, -1)) do
    if string.find(member, id, 1, true) then
      redis.call('ZREM', key_name, member)
      found[#found + 1] = member
    end
  end
  ended = ended + #found
  return found
end

for _ = 1, number() do
  if text() == 'c' then
    end_members(name())
  else
    local budget, holds, actual, ttl_ms = name(), name(), number(), number()
    local found = end_members(holds)
    for _, member in ipairs(found) do
      redis.call('HINCRBY', budget, 'held', 0 - tonumber(string.match(member, '^(%d+):')))
    end
    if #found > 0 then
      book(budget, instance, seq, actual, together, apart_max, wall, ttl_ms)
    end
  end
end
return ended
