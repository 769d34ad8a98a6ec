use domain::limits::Dimension;
use domain::priority::Priority;

use super::*;
use crate::fixture::{key, limit, on, tenant};

#[test]
fn a_limit_key_names_tag_scope_dimension_window_model_and_priority() {
    let requests = limit(Dimension::Requests, 5);
    let of_model = Limit {
        model: Some("gpt-4".into()),
        priority: Some(Priority::Low),
        ..limit(Dimension::BudgetCost, 5)
    };
    let tree = [on(Scope::Global, vec![]), on(tenant(7), vec![])];
    let tag = "00000000-0000-0000-0000-000000000007";
    let own = "00000000-0000-0000-0000-000000000009";
    assert_eq!(
        limit_key(&Scope::Global, &requests, &tree),
        "rate_limit:{global}:global:requests:60"
    );
    assert_eq!(
        limit_key(&Scope::Model("m".into()), &limit(Dimension::Concurrency, 5), &tree),
        "rate_limit:{model:m}:model:m:concurrency"
    );
    assert_eq!(
        limit_key(&key(9), &of_model, &tree),
        format!("rate_limit:{{{tag}}}:key:{own}:budget_cost:month:gpt-4:priority:low")
    );
}
