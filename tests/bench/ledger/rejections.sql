-- Requests that were refused, as those that ran: the rows {first} to {last}.
insert into rejections (
    id, refused_at, tenant_id, user_id, key_id, model, dialect, endpoint, priority, is_streamed, tags, instance,
    user_agent, code, status, scope, dimension, limit_id, limit_key, chain, message, retry_after_seconds, caller_retries,
    refusal_count, expected_input_tokens, expected_output_tokens, expected_cost_nanos, queue_ms)
select
    (substr(at_hex, 1, 8) || '-' || substr(at_hex, 9, 4) || '-7' || substr(chance_hex, 1, 3) || '-8'
        || substr(chance_hex, 4, 3) || '-' || substr(chance_hex, 7, 12))::uuid,
    at, tenant_id, coalesce(owner_id::text, 'customer-' || floor({users} * power(user_chance, 2))::integer), key_id, model,
    'openai', 'chat/completions', priority, true, '{}', 'gateway-' || 1 + i % 3, 'OpenAI/Python 2.8.1', code, 429,
    'tenant:' || tenant_id, case code when 'budget_exhausted' then 'budget_cost' else 'requests' end,
    '00000000-0000-7000-8000-000000000002', 'rate_limit:{' || tenant_id || '}', '[]',
    'Too many requests; retry in 7 s', 7, 0, 1, 1000, 500, 1000000, 0
from (
    select
        i, at, lpad(to_hex((extract(epoch from at) * 1000)::bigint), 12, '0') as at_hex,
        md5(i || ' of rejections') as chance_hex, made_keys.tenant_id, made_keys.owner_id, made_keys.id as key_id,
        made_keys.priority, made_models.name as model, user_chance,
        case when i % 10 = 0 then 'budget_exhausted' when i % 10 < 3 then 'priority_gated' else 'rate_limit_exceeded' end
            as code
    from (
        select
            i, timestamptz '{start}' + i * interval '{step_ms} ms' as at, random() as key_chance, random() as user_chance
        from generate_series({first}::bigint, {last}::bigint) as i
        offset 0
    ) as numbers
    join made_keys on made_keys.n = 1 + floor({keys} * power(key_chance, 3))::integer
    join made_models on made_models.n = made_keys.model
) as refused;
