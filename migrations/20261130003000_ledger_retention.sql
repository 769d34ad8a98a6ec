-- How long the ledger's entries are kept, in full months beside the current one; none keeps all. Roll-ups and adjustments
-- are kept in every case.
alter table settings add column ledger_retention_months smallint check (ledger_retention_months between 1 and 1200);

-- Since when entries are there: what was before was dropped, and only roll-ups still count it. No row while all is there.
create table ledger_retention (
    only_row boolean primary key default true check (only_row),
    entries_from timestamptz not null,
    changed_at timestamptz not null
);

-- The partitions of both tables that end at `before` or earlier, attached or not: a table that was detached and not dropped
-- is found again.
create function old_ledger_partitions(before timestamptz)
returns table (parent text, partition text, is_attached boolean)
language sql stable as $$
    select
        substring(found.relname from '^(settlements|rejections)_'),
        found.relname::text,
        exists (select from pg_inherits where inhrelid = found.oid)
    from pg_class as found
    where found.relkind = 'r'
        and found.relnamespace = (select relnamespace from pg_class where oid = 'settlements'::regclass)
        and found.relname ~ '^(settlements|rejections)_[0-9]{4}_[0-9]{2}$'
        and (to_date(right(found.relname, 7), 'YYYY_MM') + interval '1 month')::timestamp at time zone 'UTC' <= before
    order by right(found.relname, 7), found.relname
$$;

-- Moves the entries of one month from the default partition of `parent` to a partition of their own, which must not exist
-- yet, and answers how many. More than `entries_max` stay where they are, as nobody can write or read meanwhile: -1.
create function place_default_entries(parent text, month date, entries_max bigint) returns bigint
language plpgsql as $$
declare
    counted text := case parent when 'settlements' then 'admitted_at' else 'refused_at' end;
    first_instant timestamptz := date_trunc('month', month::timestamp) at time zone 'UTC';
    end_instant timestamptz := (date_trunc('month', month::timestamp) + interval '1 month') at time zone 'UTC';
    placed text := parent || '_' || to_char(month, 'YYYY_MM');
    entries bigint;
begin
    perform pg_advisory_xact_lock(hashtext('tollgate.ledger_partitions'));
    execute format('lock table %I in share row exclusive mode', parent);
    execute format('lock table %I in access exclusive mode', parent || '_default');
    execute format(
        'select count(*) from (
             select from %I where %I >= $1 and %I < $2 limit $3 + 1) as found',
        parent || '_default', counted, counted)
        into entries using first_instant, end_instant, entries_max;
    if entries > entries_max then
        return -1;
    end if;
    execute format('create table %I (like %I including defaults including constraints)', placed, parent);
    execute format(
        'with moved as (delete from %I where %I >= $1 and %I < $2 returning *) insert into %I select * from moved',
        parent || '_default', counted, counted, placed)
        using first_instant, end_instant;
    execute format(
        'alter table %I attach partition %I for values from (%L) to (%L)', parent, placed, first_instant, end_instant);
    return entries;
end
$$;
