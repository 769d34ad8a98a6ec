-- Thresholds of budgets that were reached. The constraint lets each of them be told once, whoever sees it and how often: for
-- each node, in each of its periods. The limit is not part of it: one that was removed and set again goes on.
create table budget_events (
    id uuid primary key,
    -- The node that spent it, as the ledger writes scopes.
    scope text not null,
    -- Whose node it is; absent for what tenants share.
    tenant_id uuid,
    limit_id uuid not null,
    dimension text not null check (dimension in ('budget_tokens', 'budget_cost')),
    period text not null check (period in ('hour', 'day', 'week', 'month')),
    model text,
    priority text,
    period_start timestamptz not null,
    period_end timestamptz not null,
    threshold_percent smallint not null check (threshold_percent between 1 and 100),
    -- What the budget was, and what was spent of it, when it was seen: tokens, or nano-units of money.
    value bigint not null,
    spent bigint not null,
    at timestamptz not null,
    constraint budget_events_once unique nulls not distinct
        (scope, dimension, period, model, priority, period_start, threshold_percent)
);

create index budget_events_at on budget_events (at desc, id desc);
create index budget_events_tenant_id on budget_events (tenant_id, at desc, id desc) where tenant_id is not null;
create index budget_events_period_end on budget_events (period_end);
