-- Each gateway's live status, written every two seconds.
create table instances (
    instance text primary key,
    seen_at timestamptz not null,
    status jsonb not null
);

-- Who changed what; written in the transaction of the change.
create table audit_log (
    id uuid primary key,
    at timestamptz not null,
    actor_id uuid,
    -- The person's e-mail address, or what acted instead (set-up, demo, command line).
    actor text not null,
    -- 'key.issue'; noun first.
    action text not null,
    subject text not null,
    tenant_id uuid,
    before jsonb,
    after jsonb,
    peer text
);

create index audit_log_at on audit_log (at desc, id desc);
create index audit_log_tenant on audit_log (tenant_id, at desc);
