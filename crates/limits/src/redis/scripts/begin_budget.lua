-- Lets a budget count from now on, closed unless its base is known.
--
-- KEYS: the budget, and that of the period before.
-- ARGV: time; not_after; wall ms; period's start; ms the period before is remembered; ttl ms; limit; ms during which
--   nobody else is asked to read its base; instance.
-- Reply: 'late'; 'known'; 'read', if the caller is to read its base; 'wait', if somebody else does. And the time.

local not_after = number()
if now > not_after then
  return { 'late', now }
end
local budget, before = name(), name()
local wall, starts, kept_ms, ttl_ms, limit, reading_ms = number(), number(), number(), number(), text(), number()
local instance = text()
local spent = spending(budget, before, wall, starts, kept_ms, limit)
begin(budget, spent, wall, ttl_ms, limit)
if spent.base then
  return { 'known', now }
end
local reading = redis.call('HMGET', budget, 'read_until', 'read_by')
local until_ms = tonumber(reading[1])
if until_ms and now < until_ms and until_ms <= now + reading_ms and reading[2] ~= instance then
  return { 'wait', now }
end
redis.call('HSET', budget, 'read_until', now + reading_ms, 'read_by', instance)
return { 'read', now }
