-- Requests that ran: the rows {first} to {last} of all, evenly from {start} on, {step_ms} ms apart, so that they are
-- written in the order of time as a gateway's are. {users} end users for each application's key.
insert into settlements (
    id, admitted_at, settled_at, tenant_id, user_id, key_id, model, dialect, endpoint, priority, is_streamed, tags,
    instance, user_agent, upstream_id, upstream_model, upstream_request_id, outcome, status, attempts,
    input_fresh_tokens, cache_read_tokens, cache_write_5m_tokens, cache_write_1h_tokens, output_tokens, reasoning_tokens,
    usage_source, expected_input_tokens, expected_output_tokens, expected_cost_nanos, ceiling_input_tokens,
    ceiling_output_tokens, ceiling_cost_nanos, cost_nanos, overrun_nanos, price_id, is_unpriced, queue_ms, first_byte_ms,
    total_ms, rehearsed)
select
    -- A UUID of version 7, as requests have.
    (substr(at_hex, 1, 8) || '-' || substr(at_hex, 9, 4) || '-7' || substr(chance_hex, 1, 3) || '-8'
        || substr(chance_hex, 4, 3) || '-' || substr(chance_hex, 7, 12))::uuid,
    at, at + total_ms * interval '1 ms', tenant_id,
    coalesce(owner_id::text, 'customer-' || floor({users} * power(user_chance, 2))::integer), key_id, model, 'openai',
    'chat/completions', priority, is_streamed,
    case when tag_chance < 0.1 then jsonb_build_object('feature', 'feature-' || floor(tag_chance * 200)) else '{}' end,
    'gateway-' || 1 + i % 3, 'OpenAI/Python 2.8.1', '00000000-0000-7000-8000-000000000001', model, 'chatcmpl-' || at_hex,
    outcome, case outcome when 'completed' then 200 when 'client_closed' then null else 502 end,
    jsonb_build_array(jsonb_build_object(
        'upstream_id', '00000000-0000-7000-8000-000000000001', 'upstream_model', model, 'status', 200, 'error', null,
        'first_byte_ms', first_byte_ms)),
    input_tokens - cached_tokens, cached_tokens, 0, 0, output_tokens, output_tokens / 4, 'reported',
    input_tokens * 23 / 20, output_tokens * 6 / 5, cost_nanos * 6 / 5, input_tokens * 3, 16000,
    (input_tokens * 3 * input_nanos + 16000 * output_nanos) / 1000000, cost_nanos, 0, price_id, false,
    case when queue_chance < 0.03 then (queue_chance * 100000)::integer else 0 end, first_byte_ms, total_ms, '[]'
from (
    select
        drawn.*,
        (cached_tokens * (input_nanos / 10) + (input_tokens - cached_tokens) * input_nanos
            + output_tokens * output_nanos + 999999) / 1000000 as cost_nanos,
        first_byte_ms + output_tokens * 12 as total_ms
    from (
        select
            i, at, lpad(to_hex((extract(epoch from at) * 1000)::bigint), 12, '0') as at_hex,
            md5(i || ' of settlements') as chance_hex, made_keys.tenant_id, made_keys.owner_id, made_keys.id as key_id,
            made_keys.priority, made_models.name as model, price_id, input_nanos, output_nanos, i % 3 > 0 as is_streamed,
            case when fate < 0.97 then 'completed' when fate < 0.985 then 'client_closed' else 'upstream_error' end
                as outcome,
            200 + (size_chance * size_chance * 8000)::bigint as input_tokens,
            case when fate < 0.3 then (size_chance * 150)::bigint else 0 end as cached_tokens,
            20 + (output_chance * output_chance * 1500)::bigint as output_tokens,
            150 + (output_chance * 900)::bigint as first_byte_ms, user_chance, tag_chance, queue_chance
        from (
            select
                i, timestamptz '{start}' + i * interval '{step_ms} ms' as at, random() as key_chance,
                random() as model_chance, random() as user_chance, random() as tag_chance, random() as queue_chance,
                random() as fate, random() as size_chance, random() as output_chance
            from generate_series({first}::bigint, {last}::bigint) as i
            -- Materialised, so that each chance is drawn once.
            offset 0
        ) as numbers
        -- A tenth of the keys makes half of the requests.
        join made_keys on made_keys.n = 1 + floor({keys} * power(key_chance, 3))::integer
        join made_models
            on made_models.n = (made_keys.model + case when model_chance < 0.7 then 0 when model_chance < 0.95 then 1 else 2 end) % 12
    ) as drawn
) as ran;
