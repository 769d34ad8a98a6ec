-- The list of all keys by last use.
create index key_uses_last_used_at on key_uses (last_used_at, key_id);
