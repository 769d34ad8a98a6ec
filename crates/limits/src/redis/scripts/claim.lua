-- Gives an idempotency key to a request, or says why not.
--
-- KEYS: the claim.
-- ARGV: time; not_after: later than this nothing is done; request id; hash of its body; lease ms; ms an answer is kept.
-- Reply: 'late', or 'ended' where the request has given the key back before, or 'yes', and the time; or 'other' (body),
--   'running', 'answered' or 'lost', the time, the request that has the key, and ms its lease lasts, 0 where it has none.

local not_after = number()
if now > not_after then
  return { 'late', now }
end
local record, request, body, lease_ms, kept_ms = name(), text(), text(), number(), number()
local claim = claim_of(record, kept_ms)
if claim.state == 'free' and claim.request == request then
  return { 'ended', now }
end
local is_vacant = not claim.state or claim.state == 'free'
if is_vacant or claim.state == 'running' and claim.request == request then
  put(record, 'running', request, body, now + lease_ms, lease_ms + kept_ms)
  return { 'yes', now }
end
if claim.body ~= body then
  return { 'other', now, claim.request, 0 }
end
return { claim.state, now, claim.request, claim.state == 'running' and claim.ends - now or 0 }
