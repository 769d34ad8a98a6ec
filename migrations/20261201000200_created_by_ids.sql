-- Which person issued a key or management token; absent where something else did, such as the demo or the command line.
-- The texts stay: they say who it was called then.
alter table keys add column created_by_id uuid references people;
alter table management_tokens add column created_by_id uuid references people;
