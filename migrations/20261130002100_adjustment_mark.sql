-- The policy version of the last adjustment, so that gateways read again what budgets have spent as soon as they hear of
-- the version. The lock on its row makes adjustments wait for each other.
create table adjustment_mark (
    only_row boolean primary key default true check (only_row),
    policy_version bigint not null
);

insert into adjustment_mark (policy_version) values (0);

create trigger adjustment_mark_policy_version before update on adjustment_mark
    for each row execute function stamp_policy_version();
