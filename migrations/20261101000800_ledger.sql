-- The ledger: append-only, partitioned by month. No foreign keys out of it: an entry must go in whatever became of the
-- rows it names. Column names are the field names of the entries' JSON.
create table settlements (
    id uuid not null,
    admitted_at timestamptz not null,
    settled_at timestamptz not null,
    tenant_id uuid not null,
    user_id text,
    key_id uuid not null,
    model text,
    dialect text not null,
    endpoint text not null,
    priority text not null,
    is_streamed boolean not null,
    tags jsonb not null,
    instance text not null,
    user_agent text,
    upstream_id uuid,
    upstream_model text,
    upstream_request_id text,
    outcome text not null,
    status smallint,
    attempts jsonb not null,
    input_fresh_tokens bigint not null,
    cache_read_tokens bigint not null,
    cache_write_5m_tokens bigint not null,
    cache_write_1h_tokens bigint not null,
    output_tokens bigint not null,
    reasoning_tokens bigint not null,
    usage_source text not null,
    expected_input_tokens bigint not null,
    expected_output_tokens bigint not null,
    expected_cost_nanos bigint not null,
    ceiling_input_tokens bigint not null,
    ceiling_output_tokens bigint not null,
    ceiling_cost_nanos bigint not null,
    cost_nanos bigint not null,
    overrun_nanos bigint not null,
    price_id uuid,
    is_unpriced boolean not null,
    queue_ms bigint not null,
    first_byte_ms bigint,
    total_ms bigint not null,
    rehearsed jsonb not null,
    primary key (id, admitted_at)
) partition by range (admitted_at);

create index settlements_admitted_at on settlements (admitted_at desc, id desc);
create index settlements_tenant on settlements (tenant_id, admitted_at desc, id desc);
create index settlements_key on settlements (key_id, admitted_at desc, id desc);
create table settlements_default partition of settlements default;

create table rejections (
    id uuid not null,
    refused_at timestamptz not null,
    tenant_id uuid not null,
    user_id text,
    key_id uuid not null,
    model text,
    dialect text not null,
    endpoint text not null,
    priority text not null,
    is_streamed boolean not null,
    tags jsonb not null,
    instance text not null,
    user_agent text,
    code text not null,
    status smallint not null,
    scope text,
    dimension text,
    limit_id uuid,
    limit_key text,
    chain jsonb not null,
    message text not null,
    retry_after_seconds bigint,
    caller_retries integer,
    refusal_count bigint not null check (refusal_count >= 1),
    expected_input_tokens bigint not null,
    expected_output_tokens bigint not null,
    expected_cost_nanos bigint not null,
    queue_ms bigint not null,
    primary key (id, refused_at)
) partition by range (refused_at);

create index rejections_refused_at on rejections (refused_at desc, id desc);
create index rejections_tenant on rejections (tenant_id, refused_at desc, id desc);
create index rejections_key on rejections (key_id, refused_at desc, id desc);
create table rejections_default partition of rejections default;

create table adjustments (
    id uuid not null,
    admitted_at timestamptz not null,
    created_at timestamptz not null,
    tenant_id uuid not null,
    user_id text,
    key_id uuid,
    model text,
    upstream_id uuid,
    priority text not null,
    input_tokens bigint not null,
    output_tokens bigint not null,
    cost_nanos bigint not null,
    reason text not null,
    author text not null,
    reference text,
    primary key (id, admitted_at)
);

create index adjustments_tenant on adjustments (tenant_id, admitted_at desc);

-- How far each gateway's journal is contained in the tables above. Moves in the same transaction as they do.
create table ledger_progress (
    instance text primary key,
    seq bigint not null,
    updated_at timestamptz not null
);

-- Journal records that Postgres would not take, kept whole for repair.
create table ledger_quarantine (
    instance text not null,
    seq bigint not null,
    record jsonb,
    -- The bytes, where they are not JSON.
    raw bytea,
    reason text not null,
    quarantined_at timestamptz not null,
    resolved_at timestamptz,
    primary key (instance, seq)
);

-- Makes the month's partitions of both tables, named settlements_2026_11. Safe to call again and from several gateways.
create function create_ledger_partitions(month date) returns void
language plpgsql as $$
declare
    first_day date := date_trunc('month', month)::date;
    after_last date := (date_trunc('month', month) + interval '1 month')::date;
    parent text;
begin
    perform pg_advisory_xact_lock(hashtext('tollgate.ledger_partitions'));
    foreach parent in array array['settlements', 'rejections'] loop
        execute format(
            'create table if not exists %I partition of %I for values from (%L) to (%L)',
            parent || '_' || to_char(first_day, 'YYYY_MM'), parent,
            first_day::text || ' 00:00:00+00', after_last::text || ' 00:00:00+00');
    end loop;
end
$$;
