-- What the owner of a key lets it use at most, below what operators have set: dimension and value, per minute or calendar month.
alter table keys add column own_limits jsonb not null default '{}';
