-- What was done from one address.
create index audit_log_peer on audit_log (peer, at desc, id desc) where peer is not null;
