-- A third grain of a month's sums: by key without users. An application's key has as many rows as end users, and a
-- report by key wants none of them. The functions are those that are there with one more grouping set.

-- Nobody adds to the sums while the new grain is filled from the finest. The tables themselves are locked: a writer that waited
-- for the triggers' own lock would go on with the functions as they were.
lock table settlement_rollups, rejection_rollups in share row exclusive mode;

alter table settlement_month_rollups
    drop constraint settlement_month_rollups_grain_check,
    add constraint settlement_month_rollups_grain_check check (grain in ('key', 'key_only', 'tenant'));
alter table rejection_month_rollups
    drop constraint rejection_month_rollups_grain_check,
    add constraint rejection_month_rollups_grain_check check (grain in ('key', 'key_only', 'tenant'));

create or replace function roll_up_settlements(added settlement_rollups[], removed settlement_rollups[]) returns void
language sql as $$
    with signed as (
        select 1 as sign, * from unnest(added)
        union all
        select -1 as sign, * from unnest(removed)
    ),
    dated as (
        select bucket_start, billing_day(bucket_start) as day from (select distinct bucket_start from signed) as buckets
    ),
    changes as (
        select signed.*, day from signed join dated using (bucket_start)
    ),
    months as (
        insert into settlement_month_rollups as kept (
            month, grain, tenant_id, user_id, key_id, model, priority, requests, failed_requests, unpriced_requests,
            estimated_requests, input_fresh_tokens, cache_read_tokens, cache_write_5m_tokens, cache_write_1h_tokens,
            output_tokens, reasoning_tokens, expected_input_tokens, expected_output_tokens, expected_cost_nanos,
            cost_nanos, overrun_nanos, adjustments, adjusted_input_tokens, adjusted_output_tokens, adjusted_cost_nanos,
            queue_ms, total_ms, total_ms_histogram, first_byte_ms_histogram)
        select
            date_trunc('month', day)::date,
            case grouping(key_id, user_id) when 0 then 'key' when 1 then 'key_only' else 'tenant' end, tenant_id,
            coalesce(user_id, ''), coalesce(key_id, '00000000-0000-0000-0000-000000000000'), model, priority,
            sum(sign * requests), sum(sign * failed_requests), sum(sign * unpriced_requests),
            sum(sign * estimated_requests), sum(sign * input_fresh_tokens), sum(sign * cache_read_tokens),
            sum(sign * cache_write_5m_tokens), sum(sign * cache_write_1h_tokens), sum(sign * output_tokens),
            sum(sign * reasoning_tokens), sum(sign * expected_input_tokens), sum(sign * expected_output_tokens),
            sum(sign * expected_cost_nanos), sum(sign * cost_nanos), sum(sign * overrun_nanos), sum(sign * adjustments),
            sum(sign * adjusted_input_tokens), sum(sign * adjusted_output_tokens), sum(sign * adjusted_cost_nanos),
            sum(sign * queue_ms), sum(sign * total_ms),
            array[
                sum(sign * total_ms_histogram[1]), sum(sign * total_ms_histogram[2]), sum(sign * total_ms_histogram[3]),
                sum(sign * total_ms_histogram[4]), sum(sign * total_ms_histogram[5]), sum(sign * total_ms_histogram[6]),
                sum(sign * total_ms_histogram[7]), sum(sign * total_ms_histogram[8]), sum(sign * total_ms_histogram[9]),
                sum(sign * total_ms_histogram[10]), sum(sign * total_ms_histogram[11]),
                sum(sign * total_ms_histogram[12]), sum(sign * total_ms_histogram[13]),
                sum(sign * total_ms_histogram[14]), sum(sign * total_ms_histogram[15]),
                sum(sign * total_ms_histogram[16])]::bigint[],
            array[
                sum(sign * first_byte_ms_histogram[1]), sum(sign * first_byte_ms_histogram[2]),
                sum(sign * first_byte_ms_histogram[3]), sum(sign * first_byte_ms_histogram[4]),
                sum(sign * first_byte_ms_histogram[5]), sum(sign * first_byte_ms_histogram[6]),
                sum(sign * first_byte_ms_histogram[7]), sum(sign * first_byte_ms_histogram[8]),
                sum(sign * first_byte_ms_histogram[9]), sum(sign * first_byte_ms_histogram[10]),
                sum(sign * first_byte_ms_histogram[11]), sum(sign * first_byte_ms_histogram[12]),
                sum(sign * first_byte_ms_histogram[13]), sum(sign * first_byte_ms_histogram[14]),
                sum(sign * first_byte_ms_histogram[15]), sum(sign * first_byte_ms_histogram[16])]::bigint[]
        from changes
        where day is not null
        group by grouping sets (
            (date_trunc('month', day), tenant_id, user_id, key_id, model, priority),
            (date_trunc('month', day), tenant_id, key_id, model, priority),
            (date_trunc('month', day), tenant_id, model, priority))
        -- The primary key's order, for every writer.
        order by 1, 2, 3, 5, 4, 6, 7
        on conflict (month, grain, tenant_id, key_id, user_id, model, priority) do update set
            requests = kept.requests + excluded.requests,
            failed_requests = kept.failed_requests + excluded.failed_requests,
            unpriced_requests = kept.unpriced_requests + excluded.unpriced_requests,
            estimated_requests = kept.estimated_requests + excluded.estimated_requests,
            input_fresh_tokens = kept.input_fresh_tokens + excluded.input_fresh_tokens,
            cache_read_tokens = kept.cache_read_tokens + excluded.cache_read_tokens,
            cache_write_5m_tokens = kept.cache_write_5m_tokens + excluded.cache_write_5m_tokens,
            cache_write_1h_tokens = kept.cache_write_1h_tokens + excluded.cache_write_1h_tokens,
            output_tokens = kept.output_tokens + excluded.output_tokens,
            reasoning_tokens = kept.reasoning_tokens + excluded.reasoning_tokens,
            expected_input_tokens = kept.expected_input_tokens + excluded.expected_input_tokens,
            expected_output_tokens = kept.expected_output_tokens + excluded.expected_output_tokens,
            expected_cost_nanos = kept.expected_cost_nanos + excluded.expected_cost_nanos,
            cost_nanos = kept.cost_nanos + excluded.cost_nanos,
            overrun_nanos = kept.overrun_nanos + excluded.overrun_nanos,
            adjustments = kept.adjustments + excluded.adjustments,
            adjusted_input_tokens = kept.adjusted_input_tokens + excluded.adjusted_input_tokens,
            adjusted_output_tokens = kept.adjusted_output_tokens + excluded.adjusted_output_tokens,
            adjusted_cost_nanos = kept.adjusted_cost_nanos + excluded.adjusted_cost_nanos,
            queue_ms = kept.queue_ms + excluded.queue_ms,
            total_ms = kept.total_ms + excluded.total_ms,
            total_ms_histogram = add_histograms(kept.total_ms_histogram, excluded.total_ms_histogram),
            first_byte_ms_histogram = add_histograms(kept.first_byte_ms_histogram, excluded.first_byte_ms_histogram)
        -- Awaited below, so that months come before days for every writer.
        returning 1
    )
    insert into settlement_day_rollups as kept (day, tenant_id, model, priority, requests, tokens, charged_nanos)
    select
        day, tenant_id, model, priority, sum(sign * requests),
        sum(sign * (input_fresh_tokens + cache_read_tokens + cache_write_5m_tokens + cache_write_1h_tokens
            + output_tokens + adjusted_input_tokens + adjusted_output_tokens)),
        sum(sign * (cost_nanos + adjusted_cost_nanos))
    from changes
    where day is not null
        and (select count(*) from months) >= 0
    group by 1, 2, 3, 4
    order by 1, 2, 3, 4
    on conflict (day, tenant_id, model, priority) do update set
        requests = kept.requests + excluded.requests,
        tokens = kept.tokens + excluded.tokens,
        charged_nanos = kept.charged_nanos + excluded.charged_nanos
$$;

create or replace function roll_up_rejections(added rejection_rollups[], removed rejection_rollups[]) returns void
language sql as $$
    with signed as (
        select 1 as sign, * from unnest(added)
        union all
        select -1 as sign, * from unnest(removed)
    ),
    dated as (
        select bucket_start, billing_day(bucket_start) as day from (select distinct bucket_start from signed) as buckets
    ),
    changes as (
        select signed.*, day from signed join dated using (bucket_start)
    ),
    months as (
        insert into rejection_month_rollups as kept (
            month, grain, tenant_id, user_id, key_id, model, priority, code, refusals)
        select
            date_trunc('month', day)::date,
            case grouping(key_id, user_id) when 0 then 'key' when 1 then 'key_only' else 'tenant' end, tenant_id,
            coalesce(user_id, ''), coalesce(key_id, '00000000-0000-0000-0000-000000000000'), model, priority, code,
            sum(sign * refusals)
        from changes
        where day is not null
        group by grouping sets (
            (date_trunc('month', day), tenant_id, user_id, key_id, model, priority, code),
            (date_trunc('month', day), tenant_id, key_id, model, priority, code),
            (date_trunc('month', day), tenant_id, model, priority, code))
        order by 1, 2, 3, 5, 4, 6, 7, 8
        on conflict (month, grain, tenant_id, key_id, user_id, model, priority, code)
        do update set refusals = kept.refusals + excluded.refusals
        returning 1
    )
    insert into rejection_day_rollups as kept (day, tenant_id, model, priority, refusals)
    select day, tenant_id, model, priority, sum(sign * refusals)
    from changes
    where day is not null
        and code <> 'replayed'
        and (select count(*) from months) >= 0
    group by 1, 2, 3, 4
    order by 1, 2, 3, 4
    on conflict (day, tenant_id, model, priority) do update set refusals = kept.refusals + excluded.refusals
$$;

create or replace function sum_settlement_months(of_month date) returns setof settlement_month_rollups
language sql stable as $$
    with bounds as (
        select starts_at, (select starts_at from billing_days where day = of_month + interval '1 month') as ends_at
        from billing_days
        where day = of_month
    )
    select
        of_month as month,
        case grouping(key_id, user_id) when 0 then 'key' when 1 then 'key_only' else 'tenant' end as grain, tenant_id,
        coalesce(user_id, '') as user_id,
        coalesce(key_id, '00000000-0000-0000-0000-000000000000') as key_id, model, priority,
        sum(requests)::bigint, sum(failed_requests)::bigint,
        sum(unpriced_requests)::bigint, sum(estimated_requests)::bigint,
        sum(input_fresh_tokens)::bigint, sum(cache_read_tokens)::bigint,
        sum(cache_write_5m_tokens)::bigint, sum(cache_write_1h_tokens)::bigint,
        sum(output_tokens)::bigint, sum(reasoning_tokens)::bigint,
        sum(expected_input_tokens)::bigint,
        sum(expected_output_tokens)::bigint,
        sum(expected_cost_nanos)::bigint, sum(cost_nanos)::bigint,
        sum(overrun_nanos)::bigint, sum(adjustments)::bigint,
        sum(adjusted_input_tokens)::bigint,
        sum(adjusted_output_tokens)::bigint, sum(adjusted_cost_nanos)::bigint,
        sum(queue_ms)::bigint, sum(total_ms)::bigint,
        array[
            sum(total_ms_histogram[1]), sum(total_ms_histogram[2]), sum(total_ms_histogram[3]),
            sum(total_ms_histogram[4]), sum(total_ms_histogram[5]), sum(total_ms_histogram[6]),
            sum(total_ms_histogram[7]), sum(total_ms_histogram[8]), sum(total_ms_histogram[9]),
            sum(total_ms_histogram[10]), sum(total_ms_histogram[11]), sum(total_ms_histogram[12]),
            sum(total_ms_histogram[13]), sum(total_ms_histogram[14]), sum(total_ms_histogram[15]),
            sum(total_ms_histogram[16])]::bigint[],
        array[
            sum(first_byte_ms_histogram[1]), sum(first_byte_ms_histogram[2]), sum(first_byte_ms_histogram[3]),
            sum(first_byte_ms_histogram[4]), sum(first_byte_ms_histogram[5]), sum(first_byte_ms_histogram[6]),
            sum(first_byte_ms_histogram[7]), sum(first_byte_ms_histogram[8]), sum(first_byte_ms_histogram[9]),
            sum(first_byte_ms_histogram[10]), sum(first_byte_ms_histogram[11]),
            sum(first_byte_ms_histogram[12]), sum(first_byte_ms_histogram[13]),
            sum(first_byte_ms_histogram[14]), sum(first_byte_ms_histogram[15]),
            sum(first_byte_ms_histogram[16])]::bigint[]
    from settlement_rollups, bounds
    where bucket_start >= starts_at and bucket_start < ends_at
    group by grouping sets (
        (tenant_id, user_id, key_id, model, priority), (tenant_id, key_id, model, priority),
        (tenant_id, model, priority))
$$;

create or replace function sum_rejection_months(of_month date) returns setof rejection_month_rollups
language sql stable as $$
    with bounds as (
        select starts_at, (select starts_at from billing_days where day = of_month + interval '1 month') as ends_at
        from billing_days
        where day = of_month
    )
    select
        of_month as month,
        case grouping(key_id, user_id) when 0 then 'key' when 1 then 'key_only' else 'tenant' end as grain, tenant_id,
        coalesce(user_id, '') as user_id,
        coalesce(key_id, '00000000-0000-0000-0000-000000000000') as key_id, model, priority, code,
        sum(refusals)::bigint
    from rejection_rollups, bounds
    where bucket_start >= starts_at and bucket_start < ends_at
    group by grouping sets (
        (tenant_id, user_id, key_id, model, priority, code), (tenant_id, key_id, model, priority, code),
        (tenant_id, model, priority, code))
$$;

insert into settlement_month_rollups (
    month, grain, tenant_id, user_id, key_id, model, priority, requests, failed_requests, unpriced_requests,
    estimated_requests, input_fresh_tokens, cache_read_tokens, cache_write_5m_tokens, cache_write_1h_tokens,
    output_tokens, reasoning_tokens, expected_input_tokens, expected_output_tokens, expected_cost_nanos, cost_nanos,
    overrun_nanos, adjustments, adjusted_input_tokens, adjusted_output_tokens, adjusted_cost_nanos, queue_ms,
    total_ms, total_ms_histogram, first_byte_ms_histogram)
select
    month, 'key_only', tenant_id, '', key_id, model, priority, sum(requests), sum(failed_requests),
    sum(unpriced_requests), sum(estimated_requests), sum(input_fresh_tokens), sum(cache_read_tokens),
    sum(cache_write_5m_tokens), sum(cache_write_1h_tokens), sum(output_tokens), sum(reasoning_tokens),
    sum(expected_input_tokens), sum(expected_output_tokens), sum(expected_cost_nanos), sum(cost_nanos),
    sum(overrun_nanos), sum(adjustments), sum(adjusted_input_tokens), sum(adjusted_output_tokens),
    sum(adjusted_cost_nanos), sum(queue_ms), sum(total_ms),
    array[
        sum(total_ms_histogram[1]), sum(total_ms_histogram[2]), sum(total_ms_histogram[3]),
        sum(total_ms_histogram[4]), sum(total_ms_histogram[5]), sum(total_ms_histogram[6]),
        sum(total_ms_histogram[7]), sum(total_ms_histogram[8]), sum(total_ms_histogram[9]),
        sum(total_ms_histogram[10]), sum(total_ms_histogram[11]), sum(total_ms_histogram[12]),
        sum(total_ms_histogram[13]), sum(total_ms_histogram[14]), sum(total_ms_histogram[15]),
        sum(total_ms_histogram[16])]::bigint[],
    array[
        sum(first_byte_ms_histogram[1]), sum(first_byte_ms_histogram[2]), sum(first_byte_ms_histogram[3]),
        sum(first_byte_ms_histogram[4]), sum(first_byte_ms_histogram[5]), sum(first_byte_ms_histogram[6]),
        sum(first_byte_ms_histogram[7]), sum(first_byte_ms_histogram[8]), sum(first_byte_ms_histogram[9]),
        sum(first_byte_ms_histogram[10]), sum(first_byte_ms_histogram[11]), sum(first_byte_ms_histogram[12]),
        sum(first_byte_ms_histogram[13]), sum(first_byte_ms_histogram[14]), sum(first_byte_ms_histogram[15]),
        sum(first_byte_ms_histogram[16])]::bigint[]
from settlement_month_rollups
where grain = 'key'
group by month, tenant_id, key_id, model, priority;

insert into rejection_month_rollups (month, grain, tenant_id, user_id, key_id, model, priority, code, refusals)
select month, 'key_only', tenant_id, '', key_id, model, priority, code, sum(refusals)
from rejection_month_rollups
where grain = 'key'
group by month, tenant_id, key_id, model, priority, code;
