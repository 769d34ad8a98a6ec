-- When a secret was last shown, as gateways write it down each minute. No part of the policy: nothing is stamped by it.
alter table key_secrets add column last_used_at timestamptz;
-- The same of a key, whichever of its secrets it was: secrets go with rotations, and this stays.
create table key_uses (
    key_id uuid primary key references keys on delete cascade,
    last_used_at timestamptz not null
);
