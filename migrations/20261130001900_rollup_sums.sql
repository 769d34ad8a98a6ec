-- What the roll-ups of a span must be, added up from its entries: to compare with, and to make them anew. The span lies on
-- 15-minute boundaries; bounds are those of the latency histograms.
create function sum_settlements(span_start timestamptz, span_end timestamptz, bounds bigint[])
returns setof settlement_rollups
language sql stable as $$
    with entries as (
        select
            date_bin('15 minutes', admitted_at, timestamptz '2000-01-01 00:00:00+00') as bucket_start,
            tenant_id, coalesce(user_id, '') as user_id, key_id, coalesce(model, '') as model,
            coalesce(upstream_id, '00000000-0000-0000-0000-000000000000') as upstream_id, priority,
            1 as requests, (outcome not in ('completed', 'client_closed'))::integer as failed_requests,
            is_unpriced::integer as unpriced_requests, (usage_source = 'estimated')::integer as estimated_requests,
            input_fresh_tokens, cache_read_tokens, cache_write_5m_tokens, cache_write_1h_tokens, output_tokens,
            reasoning_tokens, expected_input_tokens, expected_output_tokens, expected_cost_nanos, cost_nanos,
            overrun_nanos, 0 as adjustments, 0::bigint as adjusted_input_tokens, 0::bigint as adjusted_output_tokens,
            0::bigint as adjusted_cost_nanos, queue_ms, total_ms,
            -- Bounds belong to the bucket below them, hence the minus one.
            width_bucket(total_ms - 1, bounds) as total_slot,
            width_bucket(first_byte_ms - 1, bounds) as first_byte_slot
        from settlements
        where admitted_at >= span_start
            and admitted_at < span_end
        union all
        select
            date_bin('15 minutes', admitted_at, timestamptz '2000-01-01 00:00:00+00'),
            tenant_id, coalesce(user_id, ''), coalesce(key_id, '00000000-0000-0000-0000-000000000000'),
            coalesce(model, ''), coalesce(upstream_id, '00000000-0000-0000-0000-000000000000'), priority,
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, input_tokens, output_tokens, cost_nanos, 0, 0, null, null
        from adjustments
        where admitted_at >= span_start
            and admitted_at < span_end
    )
    select
        bucket_start, tenant_id, user_id, key_id, model, upstream_id, priority,
        sum(requests)::bigint, sum(failed_requests)::bigint, sum(unpriced_requests)::bigint,
        sum(estimated_requests)::bigint, sum(input_fresh_tokens)::bigint, sum(cache_read_tokens)::bigint,
        sum(cache_write_5m_tokens)::bigint, sum(cache_write_1h_tokens)::bigint, sum(output_tokens)::bigint,
        sum(reasoning_tokens)::bigint, sum(expected_input_tokens)::bigint, sum(expected_output_tokens)::bigint,
        sum(expected_cost_nanos)::bigint, sum(cost_nanos)::bigint, sum(overrun_nanos)::bigint,
        sum(adjustments)::bigint, sum(adjusted_input_tokens)::bigint, sum(adjusted_output_tokens)::bigint,
        sum(adjusted_cost_nanos)::bigint, sum(queue_ms)::bigint, sum(total_ms)::bigint,
        array[
            count(*) filter (where total_slot = 0), count(*) filter (where total_slot = 1),
            count(*) filter (where total_slot = 2), count(*) filter (where total_slot = 3),
            count(*) filter (where total_slot = 4), count(*) filter (where total_slot = 5),
            count(*) filter (where total_slot = 6), count(*) filter (where total_slot = 7),
            count(*) filter (where total_slot = 8), count(*) filter (where total_slot = 9),
            count(*) filter (where total_slot = 10), count(*) filter (where total_slot = 11),
            count(*) filter (where total_slot = 12), count(*) filter (where total_slot = 13),
            count(*) filter (where total_slot = 14), count(*) filter (where total_slot = 15)],
        array[
            count(*) filter (where first_byte_slot = 0), count(*) filter (where first_byte_slot = 1),
            count(*) filter (where first_byte_slot = 2), count(*) filter (where first_byte_slot = 3),
            count(*) filter (where first_byte_slot = 4), count(*) filter (where first_byte_slot = 5),
            count(*) filter (where first_byte_slot = 6), count(*) filter (where first_byte_slot = 7),
            count(*) filter (where first_byte_slot = 8), count(*) filter (where first_byte_slot = 9),
            count(*) filter (where first_byte_slot = 10), count(*) filter (where first_byte_slot = 11),
            count(*) filter (where first_byte_slot = 12), count(*) filter (where first_byte_slot = 13),
            count(*) filter (where first_byte_slot = 14), count(*) filter (where first_byte_slot = 15)]
    from entries
    group by 1, 2, 3, 4, 5, 6, 7
$$;

create function sum_rehearsals(span_start timestamptz, span_end timestamptz) returns setof rehearsal_rollups
language sql stable as $$
    with verdicts as (
        select
            date_bin('15 minutes', admitted_at, timestamptz '2000-01-01 00:00:00+00') as bucket_start,
            split_part(verdict ->> 'scope', ':', 1) as scope_kind, (verdict ->> 'limit_id')::uuid as limit_id,
            verdict ->> 'code' as code, tenant_id, key_id, id
        from settlements, jsonb_array_elements(rehearsed) as verdict
        where admitted_at >= span_start
            and admitted_at < span_end
            and rehearsed <> '[]'
    )
    select
        bucket_start, coalesce(scope_kind, ''), coalesce(limit_id, '00000000-0000-0000-0000-000000000000'),
        coalesce(code, ''), tenant_id, key_id, count(distinct id)
    from verdicts
    group by grouping sets (
        (bucket_start, tenant_id, key_id),
        (bucket_start, tenant_id, key_id, scope_kind),
        (bucket_start, tenant_id, key_id, scope_kind, limit_id, code))
$$;

create function sum_tags(span_start timestamptz, span_end timestamptz) returns setof tag_rollups
language sql stable as $$
    select
        date_bin('15 minutes', admitted_at, timestamptz '2000-01-01 00:00:00+00'), tenant_id, tag.key, tag.value, key_id,
        count(*), count(*) filter (where outcome not in ('completed', 'client_closed')),
        sum(input_fresh_tokens)::bigint, sum(cache_read_tokens)::bigint, sum(cache_write_5m_tokens)::bigint,
        sum(cache_write_1h_tokens)::bigint, sum(output_tokens)::bigint, sum(reasoning_tokens)::bigint,
        sum(cost_nanos)::bigint
    from settlements, jsonb_each_text(tags) as tag
    where admitted_at >= span_start
        and admitted_at < span_end
        and tags <> '{}'
    group by 1, 2, 3, 4, 5
$$;

create function sum_rejections(span_start timestamptz, span_end timestamptz) returns setof rejection_rollups
language sql stable as $$
    select
        date_bin('15 minutes', refused_at, timestamptz '2000-01-01 00:00:00+00'), tenant_id, coalesce(user_id, ''),
        key_id, left(coalesce(model, ''), 200), priority, code, coalesce(split_part(scope, ':', 1), ''),
        coalesce(dimension, ''), sum(refusal_count)::bigint, sum(early_count)::bigint, max(caller_retries)
    from rejections
    where refused_at >= span_start
        and refused_at < span_end
    group by 1, 2, 3, 4, 5, 6, 7, 8, 9
$$;


-- What the sums by month and day must be, added up from the 15-minute roll-ups of the month that begins with this day.
create function sum_settlement_months(of_month date) returns setof settlement_month_rollups
language sql stable as $$
    with bounds as (
        select starts_at, (select starts_at from billing_days where day = of_month + interval '1 month') as ends_at
        from billing_days
        where day = of_month
    )
    select
        of_month as month, case grouping(key_id) when 0 then 'key' else 'tenant' end as grain, tenant_id,
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
        (tenant_id, user_id, key_id, model, priority), (tenant_id, model, priority))
$$;

create function sum_rejection_months(of_month date) returns setof rejection_month_rollups
language sql stable as $$
    with bounds as (
        select starts_at, (select starts_at from billing_days where day = of_month + interval '1 month') as ends_at
        from billing_days
        where day = of_month
    )
    select
        of_month as month, case grouping(key_id) when 0 then 'key' else 'tenant' end as grain, tenant_id,
        coalesce(user_id, '') as user_id,
        coalesce(key_id, '00000000-0000-0000-0000-000000000000') as key_id, model, priority, code,
        sum(refusals)::bigint
    from rejection_rollups, bounds
    where bucket_start >= starts_at and bucket_start < ends_at
    group by grouping sets (
        (tenant_id, user_id, key_id, model, priority, code), (tenant_id, model, priority, code))
$$;

create function sum_settlement_days(of_month date) returns setof settlement_day_rollups
language sql stable as $$
    with days as (
        select day, starts_at, lead(starts_at) over (order by day) as ends_at
        from billing_days
        where day >= of_month
            and day <= of_month + interval '1 month'
    )
    select
        day, tenant_id, model, priority, sum(requests)::bigint,
        sum(input_fresh_tokens + cache_read_tokens + cache_write_5m_tokens + cache_write_1h_tokens
            + output_tokens + adjusted_input_tokens + adjusted_output_tokens)::bigint,
        sum(cost_nanos + adjusted_cost_nanos)::bigint
    from days
    join settlement_rollups on bucket_start >= starts_at and bucket_start < ends_at
    group by day, tenant_id, model, priority
$$;

create function sum_rejection_days(of_month date) returns setof rejection_day_rollups
language sql stable as $$
    with days as (
        select day, starts_at, lead(starts_at) over (order by day) as ends_at
        from billing_days
        where day >= of_month
            and day <= of_month + interval '1 month'
    )
    select day, tenant_id, model, priority, sum(refusals)::bigint
    from days
    join rejection_rollups on bucket_start >= starts_at and bucket_start < ends_at
    where code <> 'replayed'
    group by day, tenant_id, model, priority
$$;
