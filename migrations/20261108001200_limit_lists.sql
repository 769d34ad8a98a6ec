-- Few limits have gates and few are rehearsed; pages list them among as many as there are keys.
create index limits_gated on limits (id) where gate_lower_percent is not null and removed_at is null;
create index limits_rehearsed on limits (id) where mode = 'rehearse' and removed_at is null;
