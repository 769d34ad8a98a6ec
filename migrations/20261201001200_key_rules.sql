-- What the keys of a tenant's people may be, managers' own ones included; what is null is not ruled.
alter table tenants
    add column keys_per_person integer check (keys_per_person >= 0),
    add column key_months_max integer check (key_months_max > 0),
    add column member_priority_ceiling text
        check (member_priority_ceiling in ('low', 'default', 'high', 'critical')),
    add column member_models text[];
-- The most that the owner may give a key, as somebody above them has set it.
alter table keys
    add column priority_bound text check (priority_bound in ('low', 'default', 'high', 'critical')),
    add column models_bound text[],
    add column expires_bound timestamptz;
