-- Changes of one kind; the noun is enough.
create index audit_log_action on audit_log (action text_pattern_ops, at desc, id desc);
