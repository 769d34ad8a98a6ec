-- Reads counters and changes nothing.
--
-- KEYS: each counter's key; an account's rate with that of what its provider says, a budget's with those of its holds and of the period before.
-- ARGV: time; wall ms; number of counters; for each its kind and
--     r  1 if its provider's word is asked for, too
--     c
--     b  period's start, ms the period before is remembered, limit
-- Reply: the time, and the counters' states, each with the provider's word where that was asked for.

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
    if number() == 1 then
      replies[place] = { replies[place], redis.call('GET', name()) }
    end
  end
end
return { now, replies }
