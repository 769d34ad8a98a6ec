create table upstreams (
    id uuid primary key,
    name text not null,
    dialect text not null check (dialect in ('openai', 'anthropic')),
    base_url text not null,
    -- Sealed under the installation's secret key; absent when the upstream wants none.
    credential_sealed bytea,
    disabled_at timestamptz,
    created_at timestamptz not null,
    version bigint not null default 1,
    policy_version bigint not null
);

create unique index upstreams_name on upstreams (lower(name));
create index upstreams_policy_version on upstreams (policy_version);
create trigger upstreams_policy_version before insert or update on upstreams
    for each row execute function stamp_policy_version();

create table models (
    name text primary key,
    -- Models that share limits.
    model_group text,
    context_tokens bigint not null check (context_tokens > 0),
    output_cap_tokens bigint not null check (output_cap_tokens > 0),
    output_default_tokens bigint not null check (output_default_tokens > 0),
    encoding text not null check (encoding in ('o200k_base', 'cl100k_base', 'ratio')),
    disabled_at timestamptz,
    created_at timestamptz not null,
    version bigint not null default 1,
    policy_version bigint not null,
    constraint models_output_default check (output_default_tokens <= output_cap_tokens)
);

create index models_policy_version on models (policy_version);
create trigger models_policy_version before insert or update on models
    for each row execute function stamp_policy_version();

-- Whoever writes here also writes the model's row, so that gateways hear of it.
create table model_routes (
    model text not null references models on delete cascade,
    upstream_id uuid not null references upstreams,
    upstream_model text not null,
    position integer not null default 0,
    weight integer not null default 1 check (weight >= 1),
    primary key (model, upstream_id, upstream_model)
);

-- Rates in nano-units of the billing currency per million tokens.
create table prices (
    id uuid primary key,
    model text not null references models,
    valid_from timestamptz not null,
    valid_until timestamptz,
    input_nanos_per_mtok bigint not null check (input_nanos_per_mtok >= 0),
    cache_read_nanos_per_mtok bigint not null check (cache_read_nanos_per_mtok >= 0),
    cache_write_5m_nanos_per_mtok bigint not null check (cache_write_5m_nanos_per_mtok >= 0),
    cache_write_1h_nanos_per_mtok bigint not null check (cache_write_1h_nanos_per_mtok >= 0),
    output_nanos_per_mtok bigint not null check (output_nanos_per_mtok >= 0),
    -- [{"above_input_tokens": n, ...the five rates}]
    tiers jsonb not null default '[]',
    created_at timestamptz not null,
    created_by text not null,
    removed_at timestamptz,
    policy_version bigint not null,
    constraint prices_validity check (valid_until is null or valid_from < valid_until)
);

create index prices_model on prices (model, valid_from desc);
create index prices_policy_version on prices (policy_version);
create trigger prices_policy_version before insert or update on prices
    for each row execute function stamp_policy_version();
