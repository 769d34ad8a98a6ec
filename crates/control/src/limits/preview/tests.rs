use domain::budget_events::Thresholds;
use domain::ids::LimitId;
use domain::limits::{Dimension, Mode};
use domain::periods::Period;
use proptest::prelude::*;
use store::limit_tree::TenantLimits;
use uuid::Uuid;

use super::*;

fn limit(dimension: Dimension, value: u64) -> Limit {
    Limit {
        id: LimitId(Uuid::nil()),
        target: Target::Node(Scope::Global),
        dimension,
        value,
        increase: None,
        window_seconds: 60,
        burst: None,
        period: Period::Month,
        model: None,
        priority: None,
        mode: Mode::Enforce,
        gates: None,
        thresholds: Thresholds::default(),
    }
}

fn now() -> DateTime<Utc> {
    "2026-12-01T12:00:00Z".parse().expect("an instant")
}

fn told(changes: &[LimitChange]) -> Vec<(Dimension, Option<u64>, Option<u64>)> {
    let value = |limit: &Option<Limit>| limit.as_ref().map(|limit| limit.value);
    changes
        .iter()
        .map(|change| (change.slot.dimension, value(&change.before), value(&change.after)))
        .collect()
}

#[test]
fn only_slots_that_differ_are_told() {
    let before = [
        limit(Dimension::BudgetCost, 5),
        limit(Dimension::Requests, 60),
        limit(Dimension::Concurrency, 3),
    ];
    let mut rehearsed = limit(Dimension::Concurrency, 3);
    rehearsed.mode = Mode::Rehearse;
    let after = [
        limit(Dimension::BudgetTokens, 9),
        limit(Dimension::Requests, 60),
        rehearsed,
    ];
    assert_eq!(
        told(&changes(&before, &after)),
        [
            (Dimension::BudgetCost, Some(5), None),
            (Dimension::Concurrency, Some(3), Some(3)),
            (Dimension::BudgetTokens, None, Some(9)),
        ]
    );
}

#[test]
fn a_tenants_own_limit_in_place_of_an_equal_one_of_its_plan_changes_nothing() {
    let of_plan = limit(Dimension::Requests, 60);
    let mut own = of_plan.clone();
    own.id = LimitId(Uuid::max());
    assert_eq!(changes(&[of_plan], &[own]), []);
}

#[test]
fn children_are_added_up_with_their_new_values() {
    let tenant = TenantId(Uuid::from_u128(1));
    let user = Target::Node(Scope::User(tenant, "ada".into()));
    let mut tree = LimitTree {
        tenants: vec![TenantLimits {
            id: tenant,
            plan_id: None,
            own: vec![limit(Dimension::BudgetCost, 100)],
        }],
        below_tenants: vec![LimitSum {
            tenant_id: tenant,
            each: Class::User,
            slot: limit(Dimension::BudgetCost, 0).slot(),
            sum: 80,
            count: 2,
        }],
        ..LimitTree::default()
    };
    let (before, after) = (
        [limit(Dimension::BudgetCost, 30)],
        vec![limit(Dimension::BudgetCost, 60)],
    );
    let changes = changes(&before, &after);
    assert_eq!(
        concerning(&user, None, &tree, &changes, now()),
        [],
        "as it is there is room"
    );
    put(&mut tree, &user, None, &before, after, now());
    let found = concerning(&user, None, &tree, &changes, now());
    let sums: Vec<_> = found
        .iter()
        .map(|one| (one.parent_value, one.children_sum, one.children_count))
        .collect();
    assert_eq!(sums, [(100, 110, 2)]);
    // What is not about the slot that changes is not said here.
    let other = [LimitChange {
        slot: limit(Dimension::Requests, 1).slot(),
        before: None,
        after: Some(limit(Dimension::Requests, 1)),
    }];
    assert_eq!(concerning(&user, None, &tree, &other, now()), []);
}

proptest! {
    #[test]
    fn sums_of_children_come_back_when_a_change_is_taken_back(
        others in 0_u64..1_000,
        old in proptest::option::of(0_u64..1_000),
        new in proptest::option::of(0_u64..1_000),
    ) {
        let tenant = TenantId(Uuid::from_u128(1));
        let user = Target::Node(Scope::User(tenant, "ada".into()));
        let as_limits = |value: Option<u64>| -> Vec<Limit> {
            value.into_iter().map(|value| limit(Dimension::BudgetCost, value)).collect()
        };
        let mut tree = LimitTree {
            below_tenants: vec![LimitSum {
                tenant_id: tenant,
                each: Class::User,
                slot: limit(Dimension::BudgetCost, 0).slot(),
                sum: others + old.unwrap_or(0),
                count: 5 + u64::from(old.is_some()),
            }],
            ..LimitTree::default()
        };
        let first = tree.clone();
        put(&mut tree, &user, None, &as_limits(old), as_limits(new), now());
        prop_assert_eq!(tree.below_tenants[0].sum, others + new.unwrap_or(0));
        put(&mut tree, &user, None, &as_limits(new), as_limits(old), now());
        prop_assert_eq!(tree, first);
    }
}
