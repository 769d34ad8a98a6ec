//! Children add up slot by slot; what cannot be added up is left out.

use chrono::Duration;
use domain::budget_events::Thresholds;
use domain::ids::LimitId;
use domain::limits::{Dimension, Increase, Mode, Target};
use domain::periods::Period;
use proptest::prelude::*;
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

fn noon() -> DateTime<Utc> {
    "2026-11-29T12:00:00Z".parse().expect("an instant")
}

fn children(limits: &[&[Limit]]) -> Allowances {
    let mut allowances = Allowances::default();
    for limits in limits {
        allowances.add_child(limits, noon());
    }
    allowances
}

fn found(parent: &[Limit], limits: &[&[Limit]]) -> Vec<(Dimension, u64, u64, u64)> {
    oversubscribed(&Scope::Global, parent, Class::Tenant, &children(limits), noon())
        .into_iter()
        .map(|one| (one.slot.dimension, one.children_sum, one.children_count, one.excess()))
        .collect()
}

#[test]
fn children_above_their_parent_are_named_with_sum_and_number() {
    let parent = [limit(Dimension::BudgetCost, 100), limit(Dimension::Requests, 100)];
    let one = [limit(Dimension::BudgetCost, 60), limit(Dimension::Requests, 50)];
    assert_eq!(found(&parent, &[&one, &one]), [(Dimension::BudgetCost, 120, 2, 20)]);
    assert_eq!(found(&parent, &[&one]), []);
    assert_eq!(
        found(&[], &[&one, &one]),
        [],
        "a parent without a limit has room for all"
    );
}

#[test]
fn what_counts_is_the_value_in_force() {
    let raised = Limit {
        increase: Some(Increase {
            value: 90,
            until: noon() + Duration::seconds(1),
        }),
        ..limit(Dimension::BudgetCost, 40)
    };
    let parent = [limit(Dimension::BudgetCost, 100)];
    let one = [raised];
    assert_eq!(found(&parent, &[&one, &one]), [(Dimension::BudgetCost, 180, 2, 80)]);
    let raised_parent = [Limit {
        increase: Some(Increase {
            value: 200,
            until: noon() + Duration::seconds(1),
        }),
        ..parent[0].clone()
    }];
    assert_eq!(found(&raised_parent, &[&one, &one]), []);
}

#[test]
fn only_the_same_slot_counts() {
    let parent = [limit(Dimension::BudgetCost, 100)];
    let mut weekly = limit(Dimension::BudgetCost, 500);
    weekly.period = Period::Week;
    let mut of_model = limit(Dimension::BudgetCost, 500);
    of_model.model = Some("gpt".into());
    assert_eq!(
        found(
            &parent,
            &[&[weekly], &[of_model], &[limit(Dimension::BudgetTokens, 500)]]
        ),
        []
    );
}

#[test]
fn caps_on_single_requests_do_not_add_up() {
    let cap = limit(Dimension::RequestOutputTokens, 4_000);
    let one = [cap.clone()];
    assert_eq!(found(&[cap], &[&one, &one]), []);
}

proptest! {
    #[test]
    fn a_parent_is_named_exactly_when_the_sum_is_above_it(
        parent in 0_u64..1_000,
        values in prop::collection::vec(prop_oneof![0_u64..300, Just(u64::MAX)], 0..8),
    ) {
        let limits: Vec<[Limit; 1]> = values.iter().map(|value| [limit(Dimension::TotalTokens, *value)]).collect();
        let lists: Vec<&[Limit]> = limits.iter().map(|limits| &limits[..]).collect();
        let sum: u128 = values.iter().map(|value| u128::from(*value)).sum();
        let found = found(&[limit(Dimension::TotalTokens, parent)], &lists);
        prop_assert_eq!(found.len(), usize::from(sum > u128::from(parent)));
        if let Some((_, shown, count, excess)) = found.first() {
            prop_assert_eq!(u128::from(*shown), sum.min(u128::from(u64::MAX)));
            prop_assert_eq!(*count, values.len() as u64);
            prop_assert_eq!(*excess, *shown - parent);
        }
    }
}
