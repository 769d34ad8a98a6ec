-- Tenants, people, keys, models and prices, made of numbers: {tenants} tenants, {keys} keys.
create table made_tenants (n integer primary key, id uuid not null);
create table made_keys (
    n integer primary key,
    id uuid not null,
    tenant_id uuid not null,
    -- A person's key; an application's has none and names end users.
    owner_id uuid,
    model integer not null,
    priority text not null
);
create table made_models (
    n integer primary key,
    name text not null,
    price_id uuid not null,
    input_nanos bigint not null,
    output_nanos bigint not null
);

insert into made_tenants
select n, md5('tenant ' || n)::uuid from generate_series(1, {tenants}) as n;

insert into tenants (id, name, created_at)
select id, 'Tenant ' || n, timestamptz '2026-01-01 00:00:00+00' from made_tenants;

insert into people (id, email, name, role, tenant_id, created_at)
select
    md5('person ' || made.n)::uuid, 'person-' || made.n || '@example.com', 'Person ' || made.n, 'member', made_tenants.id,
    timestamptz '2026-01-01 00:00:00+00'
from generate_series(1, {keys}) as made (n)
-- A few tenants have most of the people.
join made_tenants on made_tenants.n = 1 + floor(({tenants} - 1) * power((made.n * 7919 % 10007) / 10007.0, 2))::integer
where made.n % 5 <> 0;

insert into made_keys
select
    made.n, md5('key ' || made.n)::uuid, made_tenants.id,
    case when made.n % 5 <> 0 then md5('person ' || made.n)::uuid end, made.n % 12,
    (array['default', 'default', 'default', 'low', 'high'])[1 + made.n % 5]
from generate_series(1, {keys}) as made (n)
join made_tenants on made_tenants.n = 1 + floor(({tenants} - 1) * power((made.n * 7919 % 10007) / 10007.0, 2))::integer;

insert into keys (id, public_id, tenant_id, owner_id, name, priority, may_name_users, created_at, created_by)
select
    id, 'made' || lpad(n::text, 8, '0'), tenant_id, owner_id, 'Key ' || n, priority, owner_id is null,
    timestamptz '2026-01-01 00:00:00+00', 'bench'
from made_keys;

insert into made_models
select n, 'model-' || n, md5('price ' || n)::uuid, 200000000 * (n + 1)::bigint, 800000000 * (n + 1)::bigint
from generate_series(0, 11) as n;

insert into models (name, context_tokens, output_cap_tokens, output_default_tokens, encoding, created_at)
select name, 200000, 16000, 1000, 'ratio', timestamptz '2026-01-01 00:00:00+00' from made_models;

insert into prices (
    id, model, valid_from, input_nanos_per_mtok, cache_read_nanos_per_mtok, cache_write_5m_nanos_per_mtok,
    cache_write_1h_nanos_per_mtok, output_nanos_per_mtok, created_at, created_by)
select
    price_id, name, timestamptz '2026-01-01 00:00:00+00', input_nanos, input_nanos / 10, input_nanos, input_nanos,
    output_nanos, timestamptz '2026-01-01 00:00:00+00', 'bench'
from made_models;
