-- What every script begins with: the time, and the four kinds of counters. Version 2.
--
-- How counters are described in KEYS and ARGV stands on top of each script; an empty bound is none. Numbers are integers below 2^53. They are passed and compared as numbers and never joined into strings, where
-- Lua would print 14 digits of them.

local RING = 21
local DROPPED_MAX = 100
local STEP_MS = 100000000
local WINDOW = '<' .. string.rep('d', 1 + RING)
local TOKENS = '<' .. string.rep('d', 6 + RING)
local TOLD = '<dddd'

-- ARGV[1]: the time in milliseconds, which only tests give; else it is the server's own.
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

local argument = 1
local function text()
  argument = argument + 1
  return ARGV[argument]
end
local function number()
  return tonumber(text())
end

local key = 0
local function name()
  key = key + 1
  return KEYS[key]
end

-- A window is the number of its newest cell and RING amounts, each at its cell's number modulo RING; `at` is where in
-- the state it begins. A cell counts until its end has left the window. A step back in time changes nothing.
local function advance(state, at, cell_ms)
  local newest = math.floor(now / cell_ms)
  for cell = math.max(state[at] + 1, newest - RING + 1), newest do
    state[at + 1 + cell % RING] = 0
  end
  state[at] = math.max(state[at], newest)
end

local function total(state, at)
  local sum = 0
  for place = at + 1, at + RING do
    sum = sum + state[place]
  end
  return sum
end

local function add(state, at, amount)
  local place = at + 1 + state[at] % RING
  state[place] = state[place] + amount
  return state[at]
end

local function replace(state, at, cell, before, after)
  if cell <= state[at] and state[at] - cell < RING then
    local place = at + 1 + cell % RING
    state[place] = math.max(0, state[place] - before) + after
  end
end

-- A bucket is whole tokens, the rest in tokens times milliseconds of the window, when it was refilled, and the value and
-- burst it was last refilled by. It may be below zero.
local function refill(state, window_ms)
  local elapsed = math.max(0, now - state[3])
  state[3] = math.max(state[3], now)
  local whole, part = math.floor(state[4] / window_ms), state[4] % window_ms
  while elapsed > 0 and state[1] < state[5] do
    -- In steps, so that no product leaves the integers.
    local step = math.min(elapsed, STEP_MS)
    local rest = state[2] + step * part
    state[1] = state[1] + step * whole + math.floor(rest / window_ms)
    state[2] = rest % window_ms
    elapsed = elapsed - step
  end
  if state[1] >= state[5] then
    state[1], state[2] = state[5], 0
  end
end

local function give_back(state, tokens)
  if state[1] < state[5] then
    state[1] = state[1] + tokens
    if state[1] >= state[5] then
      state[1], state[2] = state[5], 0
    end
  end
end

-- How long the tokens are remembered: twice what they need to refill, and two windows at least.
local function tokens_kept_ms(state, window_ms)
  local refill_ms = 0
  if state[4] > 0 then
    refill_ms = (state[5] - state[1]) / state[4] * window_ms
  end
  return math.ceil(2 * math.max(window_ms, refill_ms) + window_ms / (RING - 1))
end

-- What a request has taken: for each counter the cell, if it counts in cells. Unpacking adds where it stopped.
local function cells_of(record)
  local cells = { struct.unpack('<' .. string.rep('d', #record / 8), record) }
  cells[#cells] = nil
  return cells
end

local function state_of(key_name, format)
  local kept = redis.call('GET', key_name)
  return kept, kept and { struct.unpack(format, kept) }
end

-- What a provider has told of a counter: what is left, without what was taken since; when it was told; when that is over;
-- and how much comes back in a window meanwhile.
local function left_by(told, window_ms)
  if not told or now >= told[3] then
    return nil
  end
  local grown = told[4] * math.max(0, now - told[2])
  return told[1] + (grown - grown % window_ms) / window_ms
end

-- Members whose time has come are dropped, a bounded number at a time; those that remain are not counted.
local function expired(key_name)
  local members = redis.call('ZRANGEBYSCORE', key_name, '-inf', now, 'LIMIT', 0, DROPPED_MAX)
  if #members > 0 then
    redis.call('ZREM', key_name, unpack(members))
  end
  return members
end

local function hold_of(amount, id)
  return string.format('%.0f:%s', amount, id)
end

-- When the first of these members will have expired; later than that nothing else can.
local function first_expires(key_name, otherwise)
  local first = redis.call('ZRANGE', key_name, 0, 0, 'WITHSCORES')
  return tonumber(first[2]) or otherwise
end

-- Drops a budget's holds whose requests were never heard of again, and what was set aside for gateways that were not.
-- Nothing put there later expires before `kept_ms` have passed, so that this is seldom looked at.
local function drop_lost(budget, holds, aside, spent, kept_ms)
  if spent.check_at and now < spent.check_at then
    return
  end
  for _, member in ipairs(expired(holds)) do
    spent.held = spent.held - tonumber(string.match(member, '^(%d+):'))
  end
  for _, instance in ipairs(expired(aside)) do
    spent.aside = spent.aside - (tonumber(redis.call('HGET', budget, 'aside:' .. instance)) or 0)
    redis.call('HDEL', budget, 'aside:' .. instance)
  end
  local otherwise = now + kept_ms
  redis.call('HSET', budget, 'held', spent.held, 'aside', spent.aside,
    'check_at', math.min(first_expires(holds, otherwise), first_expires(aside, otherwise)))
end

-- What a budget has spent and holds; its base is absent while it is closed. A period that nobody has counted yet starts
-- at zero where the one before was counted from its beginning on and is not forgotten.
local function spending(budget, before, wall, starts, kept_ms, limit)
  local field = redis.call('HMGET', budget, 'base', 'since', 'held', 'first', 'limit:' .. limit, 'aside', 'check_at')
  local spent = {
    base = tonumber(field[1]), since = tonumber(field[2]) or 0, held = tonumber(field[3]) or 0,
    is_new = not field[4], knows_limit = field[5], aside = tonumber(field[6]) or 0, check_at = tonumber(field[7]),
  }
  if spent.is_new and wall < starts + kept_ms then
    local first = tonumber(redis.call('HGET', before, 'first'))
    if first and first <= starts then
      spent.base = 0
    end
  end
  -- Whoever counts here by another limit may have let requests pass that this one would have counted.
  if not spent.is_new and not spent.knows_limit then
    spent.base = nil
  end
  return spent
end

-- Writes down what `spending` found out.
local function begin(budget, spent, wall, ttl_ms, limit)
  if spent.is_new then
    redis.call('HSET', budget, 'first', wall)
    redis.call('PEXPIRE', budget, ttl_ms)
    if spent.base then
      redis.call('HSET', budget, 'base', 0)
    end
  end
  if not spent.knows_limit then
    redis.call('HSET', budget, 'limit:' .. limit, 1)
    if not spent.base then
      redis.call('HDEL', budget, 'base')
    end
  end
end

local function counted(spent)
  return { spent.base or false, spent.since, spent.held, spent.aside }
end

-- Counts what was settled past the mark of its instance. Neighbours are kept as one, which leaves when the mark has
-- passed its last entry; beyond a number of those everything new is kept as one: more is counted for a while, never less.
local function book(budget, instance, seq, amount, together, apart_max, wall, ttl_ms)
  if redis.call('HSETNX', budget, 'first', wall) == 1 then
    redis.call('PEXPIRE', budget, ttl_ms)
  end
  if amount == 0 or (seq and seq <= (tonumber(redis.call('HGET', budget, 'mark:' .. instance)) or 0)) then
    return
  end
  redis.call('HINCRBY', budget, 'since', amount)
  if not seq then
    return
  end
  local part = string.format('%s:%.0f', instance, math.floor(seq / together))
  if redis.call('HEXISTS', budget, 'sum:' .. part) == 0 then
    local count = tonumber(redis.call('HGET', budget, 'parts:' .. instance)) or 0
    if count >= apart_max then
      part = instance .. ':rest'
    else
      redis.call('HINCRBY', budget, 'parts:' .. instance, 1)
    end
  end
  redis.call('HINCRBY', budget, 'sum:' .. part, amount)
  local last = tonumber(redis.call('HGET', budget, 'last:' .. part)) or 0
  redis.call('HSET', budget, 'last:' .. part, math.max(last, seq))
end
