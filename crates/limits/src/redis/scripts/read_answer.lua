-- Reads the answer that a request has left.
--
-- KEYS: the claim.
-- ARGV: time; not_after; request id.
-- Reply: 'late', or 'no' where that request has left none, and the time; or 'yes', the time and the answer.

local not_after = number()
if now > not_after then
  return { 'late', now }
end
local record, request = name(), text()
local found = redis.call('HMGET', record, 'request', 'answer')
if found[1] ~= request or not found[2] then
  return { 'no', now }
end
return { 'yes', now, found[2] }
