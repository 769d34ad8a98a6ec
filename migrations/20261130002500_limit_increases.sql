-- A higher value for a while. It is over by itself at `increase_until`; the row keeps it until another one is set.
alter table limits
    add column increase_value bigint check (increase_value >= 0),
    add column increase_until timestamptz,
    add constraint limits_increase check ((increase_value is null) = (increase_until is null));
