-- Extends the leases of requests under way, and puts back what a flushed server has forgotten of them.
--
-- KEYS, for each part of a request: its record; then the key of each concurrency counter, and a budget's with that of its
--   holds.
-- ARGV: time; not_after; lease ms; orphan ms; record ttl ms; wall ms; number of parts; for each: request id, number of
--   counters; for each counter its kind and
--     c
--     b  ceiling, ttl ms
-- Reply: 'late' or 'yes', and the time.

local not_after = number()
if now > not_after then
  return { 'late', now }
end
local lease_ms, orphan_ms, record_ttl_ms, wall = number(), number(), number(), number()
for _ = 1, number() do
  local record, id, count = name(), text(), number()
  local kept = redis.call('GET', record)
  local is_under_way = kept ~= 'ended'
  if not kept then
    redis.call('SET', record, '', 'PX', record_ttl_ms)
  elseif is_under_way then
    redis.call('PEXPIRE', record, record_ttl_ms)
  end
  for _ = 1, count do
    if text() == 'c' then
      local members = name()
      if is_under_way then
        redis.call('ZADD', members, now + lease_ms, id)
        redis.call('PEXPIRE', members, 2 * lease_ms)
      end
    else
      local budget, holds, ceiling, ttl_ms = name(), name(), number(), number()
      if is_under_way then
        if redis.call('ZADD', holds, now + lease_ms + orphan_ms, hold_of(ceiling, id)) == 1 then
          redis.call('HINCRBY', budget, 'held', ceiling)
        end
        redis.call('PEXPIRE', holds, ttl_ms)
        if redis.call('HSETNX', budget, 'first', wall) == 1 then
          redis.call('PEXPIRE', budget, ttl_ms)
        end
      end
    end
  end
end
return { 'yes', now }
