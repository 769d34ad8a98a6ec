use domain::ids::TenantId;
use domain::limits::{Dimension, Limit};
use domain::priority::Priority;
use uuid::Uuid;

use super::*;
use crate::fixture::{key, limit};

#[test]
fn a_limit_key_names_tag_scope_dimension_window_model_and_priority() {
    let of_model = Limit {
        model: Some("gpt-4".into()),
        priority: Some(Priority::Low),
        ..limit(Dimension::BudgetCost, 5)
    };
    let tenant = TenantId(Uuid::from_u128(7));
    let own = "00000000-0000-0000-0000-000000000009";
    let name = |scope: &Scope, limit: &Limit| limit_key(scope, &limit.slot(), &tag(scope, Some(tenant)));
    assert_eq!(
        name(&Scope::Global, &limit(Dimension::Requests, 5)),
        "rate_limit:{global}:global:requests:60"
    );
    assert_eq!(
        name(&Scope::Model("m".into()), &limit(Dimension::Concurrency, 5)),
        "rate_limit:{model:m}:model:m:concurrency"
    );
    assert_eq!(
        name(&key(9), &of_model),
        format!("rate_limit:{{{tenant}}}:key:{own}:budget_cost:month:gpt-4:priority:low")
    );
}

#[test]
fn a_name_that_callers_choose_is_never_another_counters_key() {
    let tenant = TenantId(Uuid::from_u128(7));
    let user = |name: &str| Scope::User(tenant, name.into());
    let of_model = |model: &str| Limit {
        model: Some(model.into()),
        ..limit(Dimension::Requests, 5)
    };
    let name = |scope: &Scope, limit: &Limit| limit_key(scope, &limit.slot(), &tag(scope, None));
    assert_ne!(
        name(&user("a:requests:60"), &limit(Dimension::Concurrency, 5)),
        name(&user("a"), &of_model("concurrency"))
    );
    assert_eq!(
        name(&Scope::Model("a}b".into()), &limit(Dimension::Concurrency, 5)),
        "rate_limit:{model:a%7Db}:model:a%7Db:concurrency"
    );
}
