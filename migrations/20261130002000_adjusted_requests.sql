-- The request that an adjustment corrects; none where it corrects no single one. No foreign key, as for every entry.
alter table adjustments add column request_id uuid;

create index adjustments_request on adjustments (request_id) where request_id is not null;
create index adjustments_created_at on adjustments (created_at desc, id desc);
