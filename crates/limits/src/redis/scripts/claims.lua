-- What scripts on claims begin with, after counters.lua. Version 1.
--
-- A claim is a hash: `request` and the hash of its `body`; `state`, which is running, answered, lost or free; `ends`, when
-- its lease ends if it runs, else when it is forgotten; and its `answer`. A lease that has ended means lost, for as long as
-- an answer is kept. A free one says only that `request` does not run: a call of it that comes late changes nothing.

-- What is known now; without a state where the key is nobody's.
local function claim_of(record, kept_ms)
  local field = redis.call('HMGET', record, 'state', 'request', 'body', 'ends')
  local claim = { state = field[1], request = field[2], body = field[3], ends = tonumber(field[4]) }
  if claim.state == 'running' and claim.ends and now >= claim.ends then
    claim.state, claim.ends, claim.has_lapsed = 'lost', claim.ends + kept_ms, true
  end
  if not claim.ends or now >= claim.ends then
    return {}
  end
  return claim
end

-- Whether this request may say what becomes of the key: it is its own and has not ended, or nobody's.
local function may_end(claim, request)
  if not claim.state or claim.state == 'free' then
    return claim.request ~= request
  end
  return claim.request == request and (claim.state == 'running' or claim.has_lapsed)
end

-- The server drops it after so long.
local function put(record, state, request, body, ends, forgotten_in_ms, answer)
  redis.call('HSET', record, 'state', state, 'request', request, 'body', body, 'ends', ends)
  if answer then
    redis.call('HSET', record, 'answer', answer)
  else
    redis.call('HDEL', record, 'answer')
  end
  redis.call('PEXPIRE', record, forgotten_in_ms)
end
