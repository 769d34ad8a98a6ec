-- The list of all keys by name, as people read names: without regard to case.
create index keys_name on keys (lower(name), id);
