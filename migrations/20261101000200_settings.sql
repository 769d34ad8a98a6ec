-- Settings of the whole installation. A gateway that disagrees about zone, currency or secret key refuses to start.
create table settings (
    only_row boolean primary key default true check (only_row),
    time_zone text not null,
    currency text not null check (currency ~ '^[A-Z]{3}$'),
    -- A known text sealed under the installation's secret key.
    secret_key_check bytea not null,
    unpriced jsonb not null default '{"policy": "refuse"}',
    rehearsal_percent smallint check (rehearsal_percent between 1 and 100),
    version bigint not null default 1,
    policy_version bigint not null
);

create trigger settings_policy_version before insert or update on settings
    for each row execute function stamp_policy_version();
