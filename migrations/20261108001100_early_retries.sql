-- Refused requests that came before the wait was over that their key had been told. Gateways that know nothing of it yet
-- leave the columns out.
alter table rejections add column early_count bigint not null default 0;

alter table rejection_rollups
    add column early_refusals bigint not null default 0,
    -- The most that a caller said it had tried before; null where none said anything.
    add column caller_retries_max integer;
