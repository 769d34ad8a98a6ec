create table people (
    id uuid primary key,
    email text not null,
    name text not null,
    role text not null check (role in ('operator', 'auditor', 'manager', 'member')),
    -- Managers and members belong to one tenant, operators and auditors to none.
    tenant_id uuid references tenants,
    -- Argon2id in PHC format; absent until the invitation is accepted.
    password_hash text,
    disabled_at timestamptz,
    created_at timestamptz not null,
    signed_in_at timestamptz,
    version bigint not null default 1,
    constraint people_tenant check ((role in ('manager', 'member')) = (tenant_id is not null))
);

create unique index people_email on people (lower(email));
create index people_tenant_id on people (tenant_id);

-- One-time links: the first operator's set-up, invitations, password resets. Only the hash of the token is kept.
create table one_time_links (
    token_hash bytea primary key,
    purpose text not null check (purpose in ('setup', 'invitation', 'reset')),
    person_id uuid references people on delete cascade,
    created_at timestamptz not null,
    expires_at timestamptz not null,
    used_at timestamptz,
    constraint one_time_links_person check ((purpose = 'setup') = (person_id is null))
);

-- Failed sign-ins, for throttling by address and by account across gateways.
create table sign_in_failures (
    -- 'email:<address>' or 'peer:<ip>'.
    subject text not null,
    failed_at timestamptz not null
);

create index sign_in_failures_subject on sign_in_failures (subject, failed_at);

create table sessions (
    id text primary key,
    person_id uuid references people on delete cascade,
    data bytea not null,
    expires_at timestamptz not null
);

create index sessions_expires_at on sessions (expires_at);
create index sessions_person_id on sessions (person_id);
