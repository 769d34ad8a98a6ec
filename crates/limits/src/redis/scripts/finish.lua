-- Ends one request's part in one group of counters, once: a second call does nothing.
--
-- KEYS: as for one group of admit.lua, a budget without the period before.
-- ARGV: time; how: settle, refund (the count of a request stays), cancel (nothing stays), undo (the same, and the request
--   may be admitted anew); request id; ms to remember that it has ended; wall ms; instance; number of its journal entry,
--   empty for none; journal entries kept as one; entries kept apart at most; number of counters; for each its kind and
--     r  cell ms, told
--     t  cell ms, window ms, expected, actual, told
--     c
--     b  ceiling, actual, ttl ms
--     where told is 1 if its provider may say something
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

-- Nothing comes back to what a provider has left, who may have counted it, but of a part that nobody has used: if the word
-- is the one it was taken from.
local function give_back_told(amount, told_ms)
  if number() == 0 then
    return
  end
  local told_key = name()
  local _, told = state_of(told_key, TOLD)
  if told and told[2] == told_ms then
    told[1] = told[1] + amount
    redis.call('SET', told_key, struct.pack(TOLD, unpack(told)), 'KEEPTTL')
  end
end

local finish = {
  r = function(cell, _, told_ms)
    local key_name, _ = name(), number()
    give_back_told(1, told_ms)
    if not cell or is_kept then
      return
    end
    local kept, state = state_of(key_name, WINDOW)
    if kept then
      replace(state, 1, cell, 1, 0)
      redis.call('SET', key_name, struct.pack(WINDOW, unpack(state)), 'KEEPTTL')
    end
  end,
  t = function(cell, forgiven, told_ms)
    local key_name, _, window_ms, expected, actual = name(), number(), number(), number(), number()
    give_back_told(expected, told_ms)
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

local count, besides = number(), {}
if how == 'undo' then
  -- Nothing has changed then, whatever was forgiven or told. Others end with more counters than they began with.
  for place = count + 2, #cells, 2 do
    besides[cells[place]] = cells[place + 1]
  end
end
for counter = 1, count do
  finish[text()](cells[counter], besides[counter] or 0, besides[-counter])
end
return 1
