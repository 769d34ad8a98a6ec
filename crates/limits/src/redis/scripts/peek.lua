-- Reads counters and changes nothing.
--
-- KEYS: each counter's key; a budget's with those of its holds and of the period before.
-- ARGV: time; wall ms; number of counters; for each its kind and
--     r
--     t
--     c
--     b  period's start, ms the period before is remembered, limit
-- Reply: the time, and the counters' states.

local wall, replies = number(), {}
for place = 1, number() do
  local kind = text()
  if kind == 'c' then
    replies[place] = redis.call('ZCOUNT', name(), string.format('(%.0f', now), '+inf')
  elseif kind == 'b' then
    local budget, holds, before = name(), name(), name()
    local starts, kept_ms, limit = number(), number(), text()
    local spent = spending(budget, before, wall, starts, kept_ms, limit)
    local is_due = not spent.check_at or now >= spent.check_at
    for _, member in ipairs(not is_due and {} or redis.call('ZRANGEBYSCORE', holds, '-inf', now, 'LIMIT', 0, DROPPED_MAX)) do
      spent.held = spent.held - tonumber(string.match(member, '^(%d+):'))
    end
    replies[place] = counted(spent)
  else
    replies[place] = redis.call('GET', name())
  end
end
return { now, replies }
