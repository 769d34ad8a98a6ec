-- Budgets: what part has to be spent for it to be told of, in percent, the lowest first.
alter table limits
    add column threshold_percents smallint[] not null default '{50,80,100}'
        constraint limits_thresholds check (
            cardinality(threshold_percents) <= 5 and 1 <= all (threshold_percents) and 100 >= all (threshold_percents));
