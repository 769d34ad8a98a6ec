-- Whether a key's requests are answered with a job rather than refused.
alter table keys add column degrades boolean not null default false;
