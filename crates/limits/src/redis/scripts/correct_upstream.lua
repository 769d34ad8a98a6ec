-- Writes down what a provider says is left of its account, unless a better word stands.
--
-- KEYS: for each counter of the account, where the provider's word on it is kept.
-- ARGV: time; not_after; how many ms ago the request was sent that was answered so; ms a word is kept; number of counters;
--   for each: what is left, ms it stands, how much comes back in a window meanwhile, window ms.
-- Reply: 'late' or 'yes', and the time.
--
-- A word that says more than is left by the last one has to answer a request that was sent after that: answers overtake
-- each other. What is kept longer than it stands says nothing; the counters themselves stay as they are.

local not_after = number()
if now > not_after then
  return { 'late', now }
end
local sent_ms_ago, kept_ms = number(), number()
for _ = 1, number() do
  local told_key, remaining, stands_ms, per_window, window_ms = name(), number(), number(), number(), number()
  local _, told = state_of(told_key, TOLD)
  local left = left_by(told, window_ms)
  if not left or remaining < left or told[2] <= now - sent_ms_ago then
    redis.call('SET', told_key, struct.pack(TOLD, remaining, now, now + stands_ms, per_window), 'PX', kept_ms)
  end
end
return { 'yes', now }
