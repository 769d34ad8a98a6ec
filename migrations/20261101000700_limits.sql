create table limits (
    id uuid primary key,
    -- The node, or with `class` every node of that class below the tenant or plan.
    scope_kind text not null check (scope_kind in ('global', 'models', 'model', 'tenant', 'user', 'key', 'upstream', 'plan')),
    -- As in the scope's text after the colon; empty for global.
    scope_id text not null,
    class text check (class in ('tenant', 'user', 'end_user', 'key')),
    dimension text not null check (dimension in (
        'requests', 'input_tokens', 'output_tokens', 'total_tokens', 'concurrency', 'budget_tokens', 'budget_cost',
        'request_input_tokens', 'request_output_tokens', 'request_seconds')),
    -- Requests, tokens, seconds, or nano-units of money.
    value bigint not null check (value >= 0),
    window_seconds integer not null default 60 check (window_seconds between 1 and 86400),
    burst bigint check (burst > 0),
    period text not null default 'month' check (period in ('hour', 'day', 'week', 'month')),
    model text,
    priority text check (priority in ('low', 'default', 'high', 'critical')),
    mode text not null default 'enforce' check (mode in ('enforce', 'rehearse')),
    gate_lower_percent smallint,
    gate_upper_percent smallint,
    gate_upper_waits boolean not null default false,
    created_at timestamptz not null,
    removed_at timestamptz,
    version bigint not null default 1,
    policy_version bigint not null,
    constraint limits_class check (class is null or scope_kind in ('tenant', 'plan')),
    constraint limits_plan_has_class check (scope_kind <> 'plan' or class is not null),
    constraint limits_gates check (
        (gate_lower_percent is null) = (gate_upper_percent is null)
        and (gate_lower_percent is null or (1 <= gate_lower_percent and gate_lower_percent <= gate_upper_percent and gate_upper_percent <= 100)))
);

create unique index limits_slot on limits (scope_kind, scope_id, class, dimension, window_seconds, period, model, priority)
    nulls not distinct where removed_at is null;
create index limits_policy_version on limits (policy_version);
create trigger limits_policy_version before insert or update on limits
    for each row execute function stamp_policy_version();
