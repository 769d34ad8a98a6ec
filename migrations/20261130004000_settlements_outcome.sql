-- What people look for in the ledger: the few that did not end well. Each index is a change of its own, so that entries go in
-- between them.
create index settlements_outcome on settlements (outcome, admitted_at desc, id desc) where outcome <> 'completed';
