-- A gateway says that it is there, and hears who else is.
--
-- KEYS: where all gateways say so.
-- ARGV: time; not_after; instance; policy version; the last call to be counted on that it has answered; what named this
--   memory then; number of its last journal entry that was settled; 1 to call for everybody, else 0; 1 to leave, else 0;
--   ms after which a silent one is forgotten.
-- Reply: 'late' or 'yes'; the time; the number of the last call; 1 if it was known here, else 0; what names this memory: a
--   server that has forgotten everything has another; and for each gateway its name, ms since it said so, policy version,
--   the last call it has answered, number of its last journal entry.
--
-- A call is answered when the gateway has put all it holds into the counters: then they can be counted on.

local not_after = number()
if now > not_after then
  return { 'late', now }
end
local beats = name()
local instance, policy_version, answered, memory, last, calls, leaves, forgotten_ms =
  text(), number(), number(), text(), number(), number(), number(), number()
local time = redis.call('TIME')
redis.call('HSETNX', beats, 'memory', time[1] .. '.' .. time[2])
if memory ~= redis.call('HGET', beats, 'memory') then
  -- Calls before this memory began may have had higher numbers.
  answered = 0
end
local was_known = redis.call('HEXISTS', beats, 'at:' .. instance)
if leaves == 1 then
  redis.call('HDEL', beats, 'at:' .. instance, 'policy:' .. instance, 'answered:' .. instance, 'last:' .. instance)
else
  redis.call('HSET', beats, 'at:' .. instance, now, 'policy:' .. instance, policy_version,
    'answered:' .. instance, answered, 'last:' .. instance, last)
end
local call = tonumber(redis.call('HGET', beats, 'call')) or 0
if calls == 1 then
  -- Numbers go on rising when a server has forgotten everything.
  call = math.max(call + 1, now)
  redis.call('HSET', beats, 'call', call)
end
redis.call('PEXPIRE', beats, forgotten_ms)
local kept, fields = {}, redis.call('HGETALL', beats)
for place = 1, #fields, 2 do
  kept[fields[place]] = fields[place + 1]
end
local others = {}
for field, at in pairs(kept) do
  local other = string.match(field, '^at:(.*)$')
  if other then
    local silent_ms = math.max(0, now - tonumber(at))
    if silent_ms > forgotten_ms then
      redis.call('HDEL', beats, field, 'policy:' .. other, 'answered:' .. other, 'last:' .. other)
    else
      others[#others + 1] = {
        other, silent_ms, tonumber(kept['policy:' .. other]) or 0, tonumber(kept['answered:' .. other]) or 0,
        tonumber(kept['last:' .. other]) or 0,
      }
    end
  end
end
return { 'yes', now, call, was_known, kept.memory, others }
