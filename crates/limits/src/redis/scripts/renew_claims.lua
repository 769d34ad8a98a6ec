-- Extends the leases of claims whose requests run, and puts back those that a flushed server has forgotten.
--
-- KEYS: the claims.
-- ARGV: time; not_after; lease ms; ms an answer is kept; for each claim: request id, hash of its body.
-- Reply: 'late' or 'yes', and the time.

local not_after = number()
if now > not_after then
  return { 'late', now }
end
local lease_ms, kept_ms = number(), number()
for _ = 1, #KEYS do
  local record, request, body = name(), text(), text()
  if may_end(claim_of(record, kept_ms), request) then
    put(record, 'running', request, body, now + lease_ms, lease_ms + kept_ms)
  end
end
return { 'yes', now }
