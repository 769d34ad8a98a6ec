-- What became of a record in quarantine. A gap, where entries are known to be lost, is kept there, too: it has neither
-- record nor bytes, and stands for the numbers from `seq` to `last_seq`.
alter table ledger_quarantine
    add column last_seq bigint,
    add column resolution text check (resolution in ('shipped', 'closed')),
    add column resolved_by text,
    add column note text;
