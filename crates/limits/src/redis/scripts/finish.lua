-- Ends one request's part in one group of counters, once: a second call does nothing.
--
-- KEYS: as for one group of admit.lua, a budget without the period before.
-- ARGV: time; how: settle, refund (the count of a request stays), cancel (nothing stays), undo (the same, and the request
--   may be admitted anew); request id; ms to remember that it has ended; wall ms; instance; number of its journal entry,
--   empty for none; journal entries kept as one; entries kept apart at most; number of counters; for each its kind and
--     r  cell ms
--     t  cell ms, window ms, expected, actual
--     c
--     b  ceiling, actual, ttl ms
-- Reply: 1, or 0 where it had ended before.
--
-- A part that is not known any more (flushed, or expired) still counts in budgets, whose entries have numbers.

local how, id, ended_ms, wall, instance, seq = text(), text(), number(), number(), text(), number()
local together, apart_max = number(), number()
local is_settled, is_kept = how == 'settle', how == 'settle' or how == 'refund'

local record_name = name()
local record = redis.call('GET', record_name)
if record == 'ended' then
  return 0
end
if how == 'undo' then
  redis.call('DEL', record_name)
else
  redis.call('SET', record_name, 'ended', 'PX', ended_ms)
end
local cells = record and cells_of(record) or {}

local finish = {
  r = function(cell)
    local key_name, _ = name(), number()
    if not cell or is_kept then
      return
    end
    local kept, state = state_of(key_name, WINDOW)
    if kept then
      replace(state, 1, cell, 1, 0)
      redis.call('SET', key_name, struct.pack(WINDOW, unpack(state)), 'KEEPTTL')
    end
  end,
  t = function(cell, forgiven)
    local key_name, _, window_ms, expected, actual = name(), number(), number(), number(), number()
    local kept, state = state_of(key_name, TOKENS)
    if not cell or not kept then
      return
    end
    if not is_settled then
      actual = 0
    end
    refill(state, window_ms)
    if actual > expected then
      state[1] = state[1] - (actual - expected)
    else
      give_back(state, expected - actual - forgiven)
    end
    replace(state, 6, cell, expected, actual)
    redis.call('SET', key_name, struct.pack(TOKENS, unpack(state)), 'PX', tokens_kept_ms(state, window_ms))
  end,
  c = function()
    redis.call('ZREM', name(), id)
  end,
  b = function()
    local budget, holds = name(), name()
    local ceiling, actual, ttl_ms = number(), number(), number()
    -- A budget that was lost holds nothing, and would come back without an expiry.
    if redis.call('ZREM', holds, hold_of(ceiling, id)) == 1 and redis.call('EXISTS', budget) == 1 then
      -- Not -ceiling: of nothing, that would be written "-0", which is no number to Redis.
      redis.call('HINCRBY', budget, 'held', 0 - ceiling)
    end
    if is_settled then
      book(budget, instance, seq, actual, together, apart_max, wall, ttl_ms)
    end
  end,
}

local count, forgiven = number(), {}
if how == 'undo' then
  -- Nothing has changed then, whatever was forgiven. Others end with more counters than they began with.
  for place = count + 2, #cells, 2 do
    forgiven[cells[place]] = cells[place + 1]
  end
end
for counter = 1, count do
  finish[text()](cells[counter], forgiven[counter] or 0)
end
return 1
