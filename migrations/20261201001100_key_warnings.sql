-- That a key, or the overlap of its rotation, is about to end. The constraint lets each end be told of once, whoever sees it.
create table key_warnings (
    id uuid primary key,
    key_id uuid not null references keys,
    -- 'key_expires', 'overlap_ends'
    kind text not null,
    ends_at timestamptz not null,
    at timestamptz not null,
    constraint key_warnings_once unique (key_id, kind, ends_at)
);

create index key_warnings_ends_at on key_warnings (ends_at);
create index keys_expires_at on keys (expires_at) where expires_at is not null and revoked_at is null;
