-- What one person or program did; the beginning of the name is enough.
create index audit_log_actor on audit_log (lower(actor) text_pattern_ops, at desc, id desc);
