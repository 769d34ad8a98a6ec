-- Ended secrets are deleted.
create index key_secrets_valid_until on key_secrets (valid_until) where valid_until is not null;
