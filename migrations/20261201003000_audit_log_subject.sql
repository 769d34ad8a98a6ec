-- What people look for in the audit log: the history of one thing. Each index is a change of its own, so that entries go in
-- between them.
create index audit_log_subject on audit_log (subject, at desc, id desc);
