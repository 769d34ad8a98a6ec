-- Sets what the ledger says about a budget, and forgets what was counted past the marks and is contained in it.
--
-- KEYS: the budget.
-- ARGV: time; not_after; wall ms; ttl ms; limit; base; number of marks; for each: instance, and the number of its last
--   entry contained; instance.
-- Reply: 'late'; 'no', where it knows a base with a higher mark, or has none and waits for somebody else to read it; or
--   'yes'. And the time.
--
-- A server that has forgotten a budget since its base was read has forgotten what was counted past the marks, too: the
-- reading is of no use then.

local not_after = number()
if now > not_after then
  return { 'late', now }
end
local budget = name()
local wall, ttl_ms, limit, base = number(), number(), text(), number()
local marks = {}
for _ = 1, number() do
  local instance = text()
  marks[instance] = number()
end
local reader = text()
local fields = redis.call('HGETALL', budget)
local kept, is_known = {}, false
for place = 1, #fields, 2 do
  kept[fields[place]] = fields[place + 1]
end
is_known = kept.base
if not is_known and kept.read_by ~= reader then
  return { 'no', now }
end
if is_known then
  for field, mark in pairs(kept) do
    local instance = string.match(field, '^mark:(.*)$')
    if instance and (marks[instance] or 0) < tonumber(mark) then
      return { 'no', now }
    end
  end
end
local since = tonumber(kept.since) or 0
for field, last in pairs(kept) do
  local instance, part = string.match(field, '^last:(.*):(%w+)$')
  if instance and tonumber(last) <= (marks[instance] or 0) then
    local sum = 'sum:' .. instance .. ':' .. part
    since = since - tonumber(kept[sum])
    redis.call('HDEL', budget, sum, field)
    if part ~= 'rest' then
      redis.call('HINCRBY', budget, 'parts:' .. instance, -1)
    end
  end
end
for instance, mark in pairs(marks) do
  redis.call('HSET', budget, 'mark:' .. instance, mark)
end
redis.call('HSET', budget, 'base', base, 'since', since, 'limit:' .. limit, 1)
redis.call('HDEL', budget, 'read_until', 'read_by')
if redis.call('HSETNX', budget, 'first', wall) == 1 then
  redis.call('PEXPIRE', budget, ttl_ms)
end
return { 'yes', now }
