-- Addresses could not be changed until now, so that whoever has one issued what it stands on. Apart from adding the columns,
-- so that gateways read keys meanwhile; writers wait, and cannot hold the policy's version for which this waits.
lock table keys, management_tokens in share row exclusive mode;

update keys
set created_by_id = people.id
from people
where lower(people.email) = lower(keys.created_by) and keys.created_by_id is null;

update management_tokens
set created_by_id = people.id
from people
where lower(people.email) = lower(management_tokens.created_by) and management_tokens.created_by_id is null;

create index keys_created_by_id on keys (created_by_id) where created_by_id is not null;
create index management_tokens_created_by_id on management_tokens (created_by_id) where created_by_id is not null;
