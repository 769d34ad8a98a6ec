-- How many requests limits in rehearsal would have refused, by 15 minutes, from the settlements that were really inserted.
-- A request that several limits would have refused is in the row of each, once in the row of each of their levels, and
-- once in the row of all levels: none of these is the sum of others.
create table rehearsal_rollups (
    bucket_start timestamptz not null,
    -- The level: the kind of the limit's scope. Empty for all levels.
    scope_kind text not null,
    -- The nil UUID for all limits of the level.
    limit_id uuid not null,
    -- The code of the refusal; empty where the row is not about one limit.
    code text not null,
    tenant_id uuid not null,
    key_id uuid not null,
    requests bigint not null default 0,
    primary key (bucket_start, scope_kind, limit_id, code, tenant_id, key_id)
);

-- What the ledger knows of rehearsals so far.
insert into rehearsal_rollups (bucket_start, scope_kind, limit_id, code, tenant_id, key_id, requests)
select
    bucket_start, coalesce(scope_kind, ''), coalesce(limit_id, '00000000-0000-0000-0000-000000000000'),
    coalesce(code, ''), tenant_id, key_id, count(distinct id)
from (
    select
        date_bin('15 minutes', admitted_at, timestamptz '2000-01-01 00:00:00+00') as bucket_start,
        split_part(verdict ->> 'scope', ':', 1) as scope_kind, (verdict ->> 'limit_id')::uuid as limit_id,
        verdict ->> 'code' as code, tenant_id, key_id, id
    from settlements, jsonb_array_elements(rehearsed) as verdict
    where rehearsed <> '[]'
) as verdicts
group by grouping sets (
    (bucket_start, tenant_id, key_id),
    (bucket_start, tenant_id, key_id, scope_kind),
    (bucket_start, tenant_id, key_id, scope_kind, limit_id, code));
