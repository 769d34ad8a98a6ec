-- Sums of settlements by their callers' tags and by 15 minutes, from the rows that were really inserted. A request is in the
-- row of each of its tags, so only rows of one name are ever added up; what settlement_rollups have more than those had no
-- tag of that name. The key tells whose it is.
create table tag_rollups (
    bucket_start timestamptz not null,
    tenant_id uuid not null,
    tag_name text not null,
    tag_value text not null,
    key_id uuid not null,
    requests bigint not null default 0,
    failed_requests bigint not null default 0,
    input_fresh_tokens bigint not null default 0,
    cache_read_tokens bigint not null default 0,
    cache_write_5m_tokens bigint not null default 0,
    cache_write_1h_tokens bigint not null default 0,
    output_tokens bigint not null default 0,
    reasoning_tokens bigint not null default 0,
    cost_nanos bigint not null default 0,
    primary key (bucket_start, tenant_id, tag_name, tag_value, key_id)
);

create index tag_rollups_name on tag_rollups (tag_name, bucket_start, tenant_id);

-- What the ledger knows of tags so far.
insert into tag_rollups (
    bucket_start, tenant_id, tag_name, tag_value, key_id, requests, failed_requests, input_fresh_tokens, cache_read_tokens,
    cache_write_5m_tokens, cache_write_1h_tokens, output_tokens, reasoning_tokens, cost_nanos)
select
    date_bin('15 minutes', admitted_at, timestamptz '2000-01-01 00:00:00+00'), tenant_id, tag.key, tag.value, key_id,
    count(*), count(*) filter (where outcome not in ('completed', 'client_closed')), sum(input_fresh_tokens),
    sum(cache_read_tokens), sum(cache_write_5m_tokens), sum(cache_write_1h_tokens), sum(output_tokens),
    sum(reasoning_tokens), sum(cost_nanos)
from settlements, jsonb_each_text(tags) as tag
where tags <> '{}'
group by 1, 2, 3, 4, 5;
