-- Ends a request's claim, once: the first ending stands, and a second call says what the first did.
--
-- KEYS: the claim.
-- ARGV: time; not_after; request id; hash of its body; state: answered, lost, or free where it did not run; ms an answer is
--   kept; ms to remember that a request did not run; the answer, where there is one.
-- Reply: 'late'; or 'yes', or 'no' where the key is another request's; and the time.

local not_after = number()
if now > not_after then
  return { 'late', now }
end
local record, request, body, state, kept_ms, freed_ms = name(), text(), text(), text(), number(), number()
local claim = claim_of(record, kept_ms)
if may_end(claim, request) then
  if state == 'free' then
    -- A full server takes nothing new, but for what makes room before.
    redis.call('DEL', record)
  end
  local left_ms = state == 'free' and freed_ms or kept_ms
  put(record, state, request, body, now + left_ms, left_ms, state == 'answered' and text() or nil)
  return { 'yes', now }
end
return { claim.request == request and 'yes' or 'no', now }
