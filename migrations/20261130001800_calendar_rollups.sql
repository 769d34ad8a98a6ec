-- Sums by the billing time zone's days and months, beside those by 15 minutes, so that a month's report reads some
-- thousand rows and not some million. They follow the 15-minute roll-ups by triggers: whoever writes those, older gateways
-- included, cannot forget them.

-- The first instant of each day in the billing time zone, as the program reckons it: Postgres's own idea of time zones may
-- be older. The last row only ends the day before it. Empty until the first start; then the roll-ups below are filled.
create table billing_days (
    day date primary key,
    starts_at timestamptz not null unique
);

-- What the days were made by.
create table billing_calendar (
    only_row boolean primary key default true check (only_row),
    time_zone text not null,
    -- The version of the time zone database.
    tz_version text not null
);

-- By month: what a report can be divided by. Upstreams are left out. Everything is in it twice: with users and keys, and
-- without them (an empty user, the nil UUID), where there are some ten times fewer rows.
create table settlement_month_rollups (
    month date not null,
    grain text not null check (grain in ('key', 'tenant')),
    tenant_id uuid not null,
    user_id text not null,
    key_id uuid not null,
    model text not null,
    priority text not null,
    requests bigint not null,
    failed_requests bigint not null,
    unpriced_requests bigint not null,
    estimated_requests bigint not null,
    input_fresh_tokens bigint not null,
    cache_read_tokens bigint not null,
    cache_write_5m_tokens bigint not null,
    cache_write_1h_tokens bigint not null,
    output_tokens bigint not null,
    reasoning_tokens bigint not null,
    expected_input_tokens bigint not null,
    expected_output_tokens bigint not null,
    expected_cost_nanos bigint not null,
    cost_nanos bigint not null,
    overrun_nanos bigint not null,
    adjustments bigint not null,
    adjusted_input_tokens bigint not null,
    adjusted_output_tokens bigint not null,
    adjusted_cost_nanos bigint not null,
    queue_ms bigint not null,
    total_ms bigint not null,
    total_ms_histogram bigint[] not null,
    first_byte_ms_histogram bigint[] not null,
    primary key (month, grain, tenant_id, key_id, user_id, model, priority)
);

create index settlement_month_rollups_key on settlement_month_rollups (key_id, month) where grain = 'key';

create table rejection_month_rollups (
    month date not null,
    grain text not null check (grain in ('key', 'tenant')),
    tenant_id uuid not null,
    user_id text not null,
    key_id uuid not null,
    model text not null,
    priority text not null,
    code text not null,
    refusals bigint not null,
    primary key (month, grain, tenant_id, key_id, user_id, model, priority, code)
);

create index rejection_month_rollups_key on rejection_month_rollups (key_id, month) where grain = 'key';

-- By day: what a chart shows. Two tables, so that every transaction locks rows in one order.
create table settlement_day_rollups (
    day date not null,
    tenant_id uuid not null,
    model text not null,
    priority text not null,
    requests bigint not null,
    -- Input and output, adjustments included.
    tokens bigint not null,
    -- Adjustments included.
    charged_nanos bigint not null,
    primary key (day, tenant_id, model, priority)
);

create table rejection_day_rollups (
    day date not null,
    tenant_id uuid not null,
    model text not null,
    priority text not null,
    -- What was answered from the record was not refused, and is left out.
    refusals bigint not null,
    primary key (day, tenant_id, model, priority)
);

-- The billing day of an instant; null outside of the calendar.
create function billing_day(instant timestamptz) returns date
language sql stable as $$
    select day
    from (
        select day, lead(starts_at) over (order by starts_at) as ends_at
        from (
            (select day, starts_at from billing_days where starts_at <= instant order by starts_at desc limit 1)
            union all
            (select day, starts_at from billing_days where starts_at > instant order by starts_at limit 1)
        ) as around
    ) as days
    where ends_at > instant
    limit 1
$$;

-- Adds to the sums by month and day what was added to the 15-minute roll-ups, and takes away what was removed there.
create function roll_up_settlements(added settlement_rollups[], removed settlement_rollups[]) returns void
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
            date_trunc('month', day)::date, case grouping(key_id) when 0 then 'key' else 'tenant' end, tenant_id,
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

create function roll_up_rejections(added rejection_rollups[], removed rejection_rollups[]) returns void
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
            date_trunc('month', day)::date, case grouping(key_id) when 0 then 'key' else 'tenant' end, tenant_id,
            coalesce(user_id, ''), coalesce(key_id, '00000000-0000-0000-0000-000000000000'), model, priority, code,
            sum(sign * refusals)
        from changes
        where day is not null
        group by grouping sets (
            (date_trunc('month', day), tenant_id, user_id, key_id, model, priority, code),
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

-- A batch adds to rows that are there and makes others, which are two calls: one after the other, so that nobody holds rows
-- of the first and waits for those of another's second.
create function follow_settlement_rollups() returns trigger
language plpgsql as $$
begin
    perform pg_advisory_xact_lock(hashtext('tollgate.settlement_sums'));
    case tg_op
        when 'INSERT' then
            perform roll_up_settlements((select array_agg(row(added.*)::settlement_rollups) from added), null);
        when 'UPDATE' then
            perform roll_up_settlements(
                (select array_agg(row(added.*)::settlement_rollups) from added),
                (select array_agg(row(removed.*)::settlement_rollups) from removed));
        else
            perform roll_up_settlements(null, (select array_agg(row(removed.*)::settlement_rollups) from removed));
    end case;
    return null;
end
$$;

create function follow_rejection_rollups() returns trigger
language plpgsql as $$
begin
    perform pg_advisory_xact_lock(hashtext('tollgate.rejection_sums'));
    case tg_op
        when 'INSERT' then
            perform roll_up_rejections((select array_agg(row(added.*)::rejection_rollups) from added), null);
        when 'UPDATE' then
            perform roll_up_rejections(
                (select array_agg(row(added.*)::rejection_rollups) from added),
                (select array_agg(row(removed.*)::rejection_rollups) from removed));
        else
            perform roll_up_rejections(null, (select array_agg(row(removed.*)::rejection_rollups) from removed));
    end case;
    return null;
end
$$;

create trigger settlement_rollups_added after insert on settlement_rollups
    referencing new table as added for each statement execute function follow_settlement_rollups();
create trigger settlement_rollups_changed after update on settlement_rollups
    referencing new table as added old table as removed for each statement execute function follow_settlement_rollups();
create trigger settlement_rollups_removed after delete on settlement_rollups
    referencing old table as removed for each statement execute function follow_settlement_rollups();
create trigger rejection_rollups_added after insert on rejection_rollups
    referencing new table as added for each statement execute function follow_rejection_rollups();
create trigger rejection_rollups_changed after update on rejection_rollups
    referencing new table as added old table as removed for each statement execute function follow_rejection_rollups();
create trigger rejection_rollups_removed after delete on rejection_rollups
    referencing old table as removed for each statement execute function follow_rejection_rollups();
