create table plans (
    id uuid primary key,
    name text not null,
    priority_ceiling text not null check (priority_ceiling in ('low', 'default', 'high', 'critical')),
    created_at timestamptz not null,
    removed_at timestamptz,
    -- Raised by every change; an editor who saves states the version that was read.
    version bigint not null default 1,
    policy_version bigint not null
);

create unique index plans_name on plans (lower(name)) where removed_at is null;
create index plans_policy_version on plans (policy_version);
create trigger plans_policy_version before insert or update on plans
    for each row execute function stamp_policy_version();

create table tenants (
    id uuid primary key,
    name text not null,
    plan_id uuid references plans,
    priority_ceiling text check (priority_ceiling in ('low', 'default', 'high', 'critical')),
    has_strict_budgets boolean not null default false,
    suspended_at timestamptz,
    created_at timestamptz not null,
    removed_at timestamptz,
    version bigint not null default 1,
    policy_version bigint not null
);

create unique index tenants_name on tenants (lower(name)) where removed_at is null;
create index tenants_policy_version on tenants (policy_version);
create trigger tenants_policy_version before insert or update on tenants
    for each row execute function stamp_policy_version();
