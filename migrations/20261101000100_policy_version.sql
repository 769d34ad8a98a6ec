-- One row, raised once in each transaction that changes policy; gateways fetch the rows that are newer than theirs.
create table policy_version (
    only_row boolean primary key default true check (only_row),
    version bigint not null
);

insert into policy_version (version) values (0);

-- Stamps a policy row with its transaction's version. The row lock on policy_version makes writers commit in the order
-- of their versions, so a reader never skips one.
create function stamp_policy_version() returns trigger
language plpgsql as $$
declare
    stamped text := current_setting('tollgate.policy_version', true);
begin
    if stamped is null or stamped = '' then
        update policy_version set version = version + 1 returning version::text into stamped;
        perform set_config('tollgate.policy_version', stamped, true);
    end if;
    new.policy_version := stamped::bigint;
    return new;
end
$$;
