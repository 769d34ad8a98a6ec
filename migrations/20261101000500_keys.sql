create table keys (
    id uuid primary key,
    public_id text not null,
    tenant_id uuid not null references tenants,
    -- A person; a service account's key has none.
    owner_id uuid references people,
    name text not null,
    priority text not null check (priority in ('low', 'default', 'high', 'critical')),
    -- All models when absent.
    allowed_models text[],
    may_name_users boolean not null default false,
    expires_at timestamptz,
    revoked_at timestamptz,
    created_at timestamptz not null,
    created_by text not null,
    version bigint not null default 1,
    policy_version bigint not null,
    constraint keys_public_id unique (public_id)
);

create index keys_tenant_id on keys (tenant_id, created_at desc);
create index keys_owner_id on keys (owner_id) where owner_id is not null;
create index keys_policy_version on keys (policy_version);
create trigger keys_policy_version before insert or update on keys
    for each row execute function stamp_policy_version();

-- SHA-256 of the whole key text; two per key during a rotation's overlap. Whoever writes here also writes the key's row,
-- so that gateways hear of it.
create table key_secrets (
    secret_hash bytea primary key check (octet_length(secret_hash) = 32),
    key_id uuid not null references keys on delete cascade,
    created_at timestamptz not null,
    valid_until timestamptz
);

create index key_secrets_key_id on key_secrets (key_id, created_at desc);
