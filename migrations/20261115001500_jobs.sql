-- Requests whose callers come back for the answer. No foreign keys: a job ends by itself, whatever became of the rows that
-- it names.
create table jobs (
    -- By time of creation, so pages go by it.
    id uuid primary key,
    tenant_id uuid not null,
    key_id uuid not null,
    user_id text,
    model text not null,
    dialect text not null,
    endpoint text not null,
    tags jsonb not null,
    user_agent text,
    status text not null check (status in ('waiting', 'running', 'completed', 'failed', 'cancelled', 'expired')),
    created_at timestamptz not null,
    -- When it was first sent to a provider.
    started_at timestamptz,
    finished_at timestamptz,
    -- While it waits: until when it may. Once it is over: until when the answer is kept.
    expires_at timestamptz not null,
    -- When it is tried next.
    not_before timestamptz not null,
    -- Runs that came to their end, or whose gateway went away.
    attempts integer not null default 0,
    -- Tries in a row that found no room.
    denials integer not null default 0,
    -- What was in the way at the last try.
    error_code text,
    error_message text,
    -- The headers that count, and the body; sealed. Gone once it is over.
    request bytea,
    response_status smallint,
    -- The provider's answer, sealed.
    response bytea,
    -- Whose run counts. Kept until the run has ended, also when the job is called off meanwhile.
    claim_token uuid,
    claim_instance text,
    heartbeat_at timestamptz,
    -- Whether the ledger has a row of it.
    is_booked boolean not null default false,
    check ((status in ('waiting', 'running')) = (finished_at is null)),
    check (status <> 'running' or (claim_token is not null and heartbeat_at is not null)),
    check (status <> 'waiting' or claim_token is null),
    check (finished_at is null or request is null)
);

-- What is sealed does not get smaller.
alter table jobs alter column request set storage external;
alter table jobs alter column response set storage external;

create index jobs_tenant on jobs (tenant_id, id desc);
create index jobs_key on jobs (key_id, id desc);
create index jobs_waiting on jobs (tenant_id, not_before, id) where status = 'waiting';
create index jobs_running on jobs (tenant_id, heartbeat_at) where status = 'running';
create index jobs_patience on jobs (expires_at) where status = 'waiting';
create index jobs_unbooked on jobs (finished_at) where status in ('cancelled', 'expired') and not is_booked;
create index jobs_answered on jobs (expires_at) where response is not null;
create index jobs_finished on jobs (finished_at) where finished_at is not null;
