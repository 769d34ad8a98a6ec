-- Adds two histograms bucket by bucket.
create function add_histograms(one bigint[], other bigint[]) returns bigint[]
language sql immutable parallel safe as $$
    select array_agg(coalesce(a, 0) + coalesce(b, 0) order by position)
    from unnest(one, other) with ordinality as pairs (a, b, position)
$$;

-- Sums of settlements and adjustments by 15 minutes, from the rows that were really inserted. Columns that may be unknown
-- are stored as empty text or the nil UUID, so that they can be part of the key.
create table settlement_rollups (
    bucket_start timestamptz not null,
    tenant_id uuid not null,
    user_id text not null,
    key_id uuid not null,
    model text not null,
    upstream_id uuid not null,
    priority text not null,
    requests bigint not null default 0,
    failed_requests bigint not null default 0,
    unpriced_requests bigint not null default 0,
    estimated_requests bigint not null default 0,
    input_fresh_tokens bigint not null default 0,
    cache_read_tokens bigint not null default 0,
    cache_write_5m_tokens bigint not null default 0,
    cache_write_1h_tokens bigint not null default 0,
    output_tokens bigint not null default 0,
    reasoning_tokens bigint not null default 0,
    expected_input_tokens bigint not null default 0,
    expected_output_tokens bigint not null default 0,
    expected_cost_nanos bigint not null default 0,
    cost_nanos bigint not null default 0,
    overrun_nanos bigint not null default 0,
    adjustments bigint not null default 0,
    adjusted_input_tokens bigint not null default 0,
    adjusted_output_tokens bigint not null default 0,
    adjusted_cost_nanos bigint not null default 0,
    queue_ms bigint not null default 0,
    total_ms bigint not null default 0,
    -- Counts by latency; upper bounds in milliseconds as in the domain's LATENCY_BOUNDS_MS, one more open above.
    total_ms_histogram bigint[] not null,
    first_byte_ms_histogram bigint[] not null,
    primary key (bucket_start, tenant_id, key_id, user_id, model, upstream_id, priority)
);

create index settlement_rollups_tenant on settlement_rollups (tenant_id, bucket_start);
create index settlement_rollups_key on settlement_rollups (key_id, bucket_start);

create table rejection_rollups (
    bucket_start timestamptz not null,
    tenant_id uuid not null,
    user_id text not null,
    key_id uuid not null,
    model text not null,
    priority text not null,
    code text not null,
    -- Kind and dimension of what refused; empty where no limit did.
    scope_kind text not null,
    dimension text not null,
    refusals bigint not null default 0,
    primary key (bucket_start, tenant_id, key_id, user_id, model, priority, code, scope_kind, dimension)
);

create index rejection_rollups_tenant on rejection_rollups (tenant_id, bucket_start);
create index rejection_rollups_key on rejection_rollups (key_id, bucket_start);
