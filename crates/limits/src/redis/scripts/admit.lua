-- Takes one request's part from every counter of the first group and of the first other group with room, or from none.
--
-- KEYS, for each group: its record of the request; then each counter's key, an account's rate with that of what its
--   provider says, a budget's with those of its holds, of what is set aside, and of the period before.
-- ARGV: time; not_after: later than this nothing is done; request id; lease ms; orphan ms; record ttl ms; wall ms; number
--   of groups; for each group: 1 if it may take (else it is only looked at), 1 if a part given back leaves the request's
--   count, number of counters; for each counter its kind and
--     r  cell ms, window ms, most before, told, least told
--     t  cell ms, window ms, most before, need, least in the bucket, value, burst, 1 if debt beyond a window is forgiven,
--        told, least told
--     c  most before
--     b  need, most spent and held before, the same for gates, period's start, ms the period before is remembered,
--        ttl ms, limit
--     where told is 1 if its provider may say something, and least told what has to be left by that
-- Reply: 'late' and the time; or 'ended' and the time, where the request was cancelled before; or 'yes' or 'no', the time,
--   the number of the other group taken (0 for none), the number of groups looked at, and the states of their counters as
--   they were before, each with the provider's word where it may have one.
--
-- A request that has a part already gives it back first: a retry at the same upstream is not in its own way.

-- Members that have expired are not counted; they are cleared away by one call in so many.
local EXPIRED_EVERY = 16

local not_after = number()
if now > not_after then
  return { 'late', now }
end
local id, lease_ms, orphan_ms, record_ttl_ms, wall = text(), number(), number(), number(), number()

local read = {}

local function empty_cells(state)
  for _ = 1, RING do
    state[#state + 1] = 0
  end
  return state
end

-- The provider's word on a counter that may have one.
local function hear(counter, need)
  local may_be_told, least_told, word = number() == 1, number()
  if not may_be_told then
    return
  end
  counter.told_key, counter.need = name(), need
  word, counter.told = state_of(counter.told_key, TOLD)
  local left = left_by(counter.told, counter.window_ms)
  counter.has_room = counter.has_room and (not least_told or not left or left >= least_told)
  counter.reply = { counter.reply, word }
end

local function take_of_told(counter)
  if counter.told then
    counter.told[1] = counter.told[1] - counter.need
    redis.call('SET', counter.told_key, struct.pack(TOLD, unpack(counter.told)), 'KEEPTTL')
  end
end

read.r = function(before, keeps_request)
  local counter = { kind = 'r', key = name() }
  local cell_ms, window_ms, most = number(), number(), number()
  counter.reply, counter.state = state_of(counter.key, WINDOW)
  local state = counter.state or empty_cells({ math.floor(now / cell_ms) })
  counter.state, counter.window_ms = state, window_ms
  if before and not keeps_request then
    replace(state, 1, before, 1, 0)
    counter.reply = struct.pack(WINDOW, unpack(state))
  end
  advance(state, 1, cell_ms)
  counter.has_room = not most or total(state, 1) <= most
  hear(counter, 1)
  return counter
end

read.t = function(before)
  local counter = { kind = 't', key = name() }
  local cell_ms, window_ms, most = number(), number(), number()
  local need, least, value, burst, forgives = number(), number(), number(), number(), number()
  counter.reply, counter.state = state_of(counter.key, TOKENS)
  local state = counter.state or empty_cells({ burst, 0, now, value, burst, math.floor(now / cell_ms) })
  counter.state, counter.window_ms, counter.need, counter.forgives = state, window_ms, need, forgives == 1
  if before then
    give_back(state, need)
    replace(state, 6, before, need, 0)
    counter.reply = struct.pack(TOKENS, unpack(state))
  end
  state[4], state[5] = value, burst
  refill(state, window_ms)
  advance(state, 6, cell_ms)
  counter.has_room = (not most or total(state, 6) <= most) and (not least or state[1] >= least)
  hear(counter, need)
  return counter
end

read.c = function(before)
  local counter = { kind = 'c', key = name() }
  local most = number()
  if now % EXPIRED_EVERY == 0 then
    expired(counter.key)
  end
  counter.reply = redis.call('ZCOUNT', counter.key, string.format('(%.0f', now), '+inf')
  -- An expired one is not among those that were counted.
  if before and (tonumber(redis.call('ZSCORE', counter.key, id)) or 0) > now then
    counter.reply = counter.reply - 1
  end
  counter.has_room = not most or counter.reply <= most
  return counter
end

read.b = function(before)
  local counter = { kind = 'b', key = name(), holds = name() }
  local aside, period_before = name(), name()
  local need, most, most_gated, starts, kept_ms, ttl_ms, limit =
    number(), number(), number(), number(), number(), number(), text()
  local spent = spending(counter.key, period_before, wall, starts, kept_ms, limit)
  begin(counter.key, spent, wall, ttl_ms, limit)
  drop_lost(counter.key, counter.holds, aside, spent, lease_ms + orphan_ms)
  if before and redis.call('ZSCORE', counter.holds, hold_of(need, id)) then
    spent.held = spent.held - need
  end
  local sum = (spent.base or 0) + spent.since + spent.held
  counter.need, counter.ttl_ms, counter.reply, counter.had_none = need, ttl_ms, counted(spent), spent.held <= 0
  counter.has_room = (not most or (spent.base and sum + spent.aside <= most)) and (not most_gated or sum <= most_gated)
  return counter
end

local take = {
  r = function(counter)
    take_of_told(counter)
    local cell = add(counter.state, 1, 1)
    local kept_ms = math.ceil(2 * counter.window_ms + counter.window_ms / (RING - 1))
    redis.call('SET', counter.key, struct.pack(WINDOW, unpack(counter.state)), 'PX', kept_ms)
    return cell
  end,
  t = function(counter)
    take_of_told(counter)
    local state = counter.state
    state[1] = state[1] - counter.need
    if counter.forgives and state[1] < -state[4] then
      counter.forgiven = -state[4] - state[1]
      state[1] = -state[4]
    end
    local cell = add(state, 6, counter.need)
    redis.call('SET', counter.key, struct.pack(TOKENS, unpack(state)), 'PX', tokens_kept_ms(state, counter.window_ms))
    return cell
  end,
  c = function(counter)
    redis.call('ZADD', counter.key, now + lease_ms, id)
    redis.call('PEXPIRE', counter.key, 2 * lease_ms)
    return 0
  end,
  b = function(counter)
    if redis.call('ZADD', counter.holds, now + lease_ms + orphan_ms, hold_of(counter.need, id)) == 1 then
      redis.call('HINCRBY', counter.key, 'held', counter.need)
    end
    if counter.had_none then
      redis.call('PEXPIRE', counter.holds, counter.ttl_ms)
    end
    return 0
  end,
}

local groups, replies, chosen = {}, {}, 0
local has_ended, has_room = false, true
for place = 1, number() do
  local group = { record = name() }
  local may_take, keeps_request, count = number() == 1, number() == 1, number()
  local record = redis.call('GET', group.record)
  has_ended = has_ended or record == 'ended'
  local before = record and record ~= 'ended' and cells_of(record)
  local fits = may_take
  for counter = 1, count do
    local found = read[text()](before and before[counter], keeps_request)
    group[counter] = found
    replies[#replies + 1] = found.reply
    fits = fits and found.has_room
  end
  groups[place] = group
  if place == 1 then
    has_room = fits
  elseif fits then
    chosen = place - 1
  end
  if not has_room or chosen > 0 then
    break
  end
end
if has_ended then
  return { 'ended', now }
end
if not has_room or (#groups > 1 and chosen == 0) then
  return { 'no', now, 0, #groups, replies }
end
for place, group in ipairs(groups) do
  if place == 1 or place - 1 == chosen then
    local cells = {}
    for counter = 1, #group do
      cells[counter] = take[group[counter].kind](group[counter])
    end
    -- An empty record would be none. What was forgiven comes last, with the place of its counter; and when it was told
    -- what this took from, with that place below zero.
    cells[#cells + 1] = 0
    for counter, found in ipairs(group) do
      if found.forgiven then
        cells[#cells + 1], cells[#cells + 2] = counter, found.forgiven
      end
      if found.told then
        cells[#cells + 1], cells[#cells + 2] = -counter, found.told[2]
      end
    end
    redis.call('SET', group.record, struct.pack('<' .. string.rep('d', #cells), unpack(cells)), 'PX', record_ttl_ms)
  end
end
return { 'yes', now, chosen, #groups, replies }
