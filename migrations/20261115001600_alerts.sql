-- What operators should hear of without looking.
create table alerts (
    id uuid primary key,
    kind text not null,
    -- What it is about: 'model:<name>', 'upstream:<id>', 'upstream:<id>/<model>'; empty for the gateway itself.
    subject text not null,
    -- The gateway that saw it.
    instance text not null,
    message text not null,
    raised_at timestamptz not null,
    last_seen_at timestamptz not null,
    -- When its gateway last said that it is open. What nobody says any more is cleared by the others.
    kept_at timestamptz not null,
    cleared_at timestamptz,
    count bigint not null check (count > 0)
);

create unique index alerts_open on alerts (kind, subject, instance) where cleared_at is null;
create index alerts_raised_at on alerts (raised_at desc, id desc);
create index alerts_cleared_at on alerts (cleared_at) where cleared_at is not null;

-- Where events go, if anywhere.
create table alert_webhook (
    only_row boolean primary key default true check (only_row),
    -- Both sealed under the installation's secret key: addresses of this kind often hold a secret themselves.
    url_sealed bytea not null,
    secret_sealed bytea not null,
    changed_at timestamptz not null,
    version bigint not null default 1
);

-- Events on their way to the webhook, and what became of them. Written with the alert that they tell of, if there is a
-- webhook then.
create table alert_deliveries (
    id uuid primary key,
    -- Absent for a test.
    alert_id uuid references alerts on delete cascade,
    -- 'alert.raised', 'alert.cleared', 'alert.test'
    event text not null,
    at timestamptz not null,
    -- The JSON that is sent, the same each time.
    body text not null,
    attempts integer not null default 0,
    -- When it is to be sent next. Whoever takes it moves this on, so that nobody else does, and another may if it dies.
    due_at timestamptz not null,
    delivered_at timestamptz,
    given_up_at timestamptz,
    -- Why the last attempt failed.
    last_error text
);

create index alert_deliveries_due on alert_deliveries (due_at) where delivered_at is null and given_up_at is null;
create index alert_deliveries_at on alert_deliveries (at desc, id desc);
create index alert_deliveries_alert_id on alert_deliveries (alert_id, at);
