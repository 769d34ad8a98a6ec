-- Sets a part of what is left of budgets aside for one gateway: what it may spend should it lose this server.
--
-- KEYS, for each budget: its key, and that of the parts set aside.
-- ARGV: time; not_after; instance; ms until the part may be spent by others again; number of budgets; for each: its value;
--   millionths of what is left to set aside; ttl ms.
-- Reply: 'late' or 'yes'; the time; and for each budget what is set aside, or nothing where it has no base.

local not_after = number()
if now > not_after then
  return { 'late', now }
end
local instance, kept_ms = text(), number()
local parts = {}
for place = 1, number() do
  local budget, aside, value, millionths, ttl_ms = name(), name(), number(), number(), number()
  local field = redis.call('HMGET', budget, 'base', 'since', 'held', 'aside', 'aside:' .. instance)
  local before = tonumber(field[5]) or 0
  parts[place] = false
  if field[1] then
    local others = (tonumber(field[4]) or 0) - before
    local left = value - tonumber(field[1]) - (tonumber(field[2]) or 0) - (tonumber(field[3]) or 0) - others
    local part = math.floor(math.max(0, left) * millionths / 1000000)
    redis.call('HSET', budget, 'aside', others + part, 'aside:' .. instance, part)
    redis.call('ZADD', aside, now + kept_ms, instance)
    redis.call('PEXPIRE', aside, ttl_ms)
    parts[place] = part
  end
end
return { 'yes', now, parts }
