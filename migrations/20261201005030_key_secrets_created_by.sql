-- Who has made a secret, and so has seen its text; absent in rows from before.
alter table key_secrets
    add column created_by_id uuid;

create index key_secrets_created_by_id on key_secrets (created_by_id) where created_by_id is not null;
