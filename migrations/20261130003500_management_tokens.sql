-- Tokens of the management API. Of a token only its hash is kept; a revoked one stays for audit.
create table management_tokens (
    id uuid primary key,
    public_id text not null,
    name text not null,
    -- The whole installation's when absent.
    tenant_id uuid references tenants,
    permissions text[] not null check (cardinality(permissions) > 0),
    token_hash bytea not null,
    created_at timestamptz not null,
    created_by text not null,
    expires_at timestamptz not null,
    revoked_at timestamptz,
    -- To the minute: a request costs no write.
    last_used_at timestamptz,
    constraint management_tokens_public_id unique (public_id),
    constraint management_tokens_token_hash unique (token_hash)
);

create index management_tokens_created_at on management_tokens (created_at desc, id desc);
