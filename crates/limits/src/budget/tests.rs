use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::fixture::at;

fn november() -> Span {
    Period::Month.span(at("2026-11-29T12:00:00Z"), Tz::UTC)
}

/// A budget with a base of zero in November.
fn budget() -> Budget {
    let mut budget = Budget::new(november(), at("2026-11-29T12:00:00Z"));
    assert!(budget.set_base(november(), BudgetBase::ZERO, at("2026-11-29T12:00:00Z")));
    budget
}

fn spent(budget: &Budget) -> i128 {
    budget.current().spent()
}

#[test]
fn a_base_drops_what_it_contains_and_keeps_the_rest() {
    let mut budget = budget();
    for (seq, amount) in [(1, 10), (3, 30), (2, 20), (4, 40)] {
        budget.current.settle(amount, Some(seq));
    }
    assert_eq!(spent(&budget), 100);
    assert!(budget.set_base(
        november(),
        BudgetBase { spent: 60, mark: 3 },
        at("2026-11-29T12:00:00Z")
    ));
    assert_eq!(spent(&budget), 100);
    budget.current.settle(20, Some(2));
    assert_eq!(
        spent(&budget),
        100,
        "an entry that the base contains is not counted again"
    );
}

#[test]
fn drift_does_not_outlive_the_next_reading() {
    let mut budget = budget();
    budget.current.settle(999, Some(1));
    assert!(budget.set_base(
        november(),
        BudgetBase { spent: 10, mark: 1 },
        at("2026-11-29T12:00:00Z")
    ));
    assert_eq!(spent(&budget), 10);
    // A credit was booked: the same mark, another sum.
    assert!(budget.set_base(
        november(),
        BudgetBase { spent: -5, mark: 1 },
        at("2026-11-29T12:00:00Z")
    ));
    assert_eq!(spent(&budget), -5);
}

#[test]
fn a_reading_that_arrives_late_is_turned_away() {
    let mut budget = budget();
    budget.current.settle(10, Some(1));
    budget.current.settle(20, Some(2));
    assert!(budget.set_base(
        november(),
        BudgetBase { spent: 30, mark: 2 },
        at("2026-11-29T12:00:00Z")
    ));
    assert!(!budget.set_base(
        november(),
        BudgetBase { spent: 10, mark: 1 },
        at("2026-11-29T12:00:00Z")
    ));
    assert_eq!(spent(&budget), 30);
}

#[test]
fn a_settlement_without_an_entry_stays_until_the_period_ends() {
    let mut budget = budget();
    budget.current.settle(10, None);
    assert!(budget.set_base(
        november(),
        BudgetBase { spent: 7, mark: 100 },
        at("2026-11-29T12:00:00Z")
    ));
    assert_eq!(spent(&budget), 17);
}

#[test]
fn a_period_that_began_under_our_eyes_starts_at_zero() {
    let mut budget = Budget::new(november(), at("2026-11-29T12:00:00Z"));
    assert_eq!(budget.current().base(), None);
    let december = budget.span_at(at("2026-12-01T00:00:00Z"), Period::Month, Tz::UTC);
    assert_eq!(december.base(), Some(BudgetBase::ZERO));
}

#[test]
fn a_period_in_which_requests_passed_by_is_closed() {
    let mut budget = budget();
    budget.pass_by(at("2026-12-03T00:00:00Z"));
    let december = budget.span_at(at("2026-12-05T00:00:00Z"), Period::Month, Tz::UTC);
    assert_eq!(december.base(), None);
    let january = budget.span_at(at("2027-01-01T00:00:00Z"), Period::Month, Tz::UTC);
    assert_eq!(january.base(), Some(BudgetBase::ZERO));
}

#[test]
fn a_request_admitted_just_before_midnight_counts_in_its_own_period() {
    let mut budget = budget();
    budget.span_at(at("2026-12-01T00:00:00.001Z"), Period::Month, Tz::UTC);
    let before = budget.span_at(at("2026-11-30T23:59:59.999Z"), Period::Month, Tz::UTC);
    assert_eq!(before.span, november());
    before.settle(10, Some(1));
    assert_eq!(spent(&budget), 0);
    assert_eq!(budget.current().span.start, at("2026-12-01T00:00:00Z"));
}

proptest! {
    #[test]
    fn nothing_is_counted_twice_and_nothing_is_lost(
        settlements in prop::collection::vec((1_u64..40, 1_u64..1_000), 1..60),
        mark_steps in prop::collection::vec(0_u64..6, 1..60),
    ) {
        let mut ledger: BTreeMap<u64, u64> = BTreeMap::new();
        let mut budget = budget();
        let mut mark = 0;
        for ((seq, amount), step) in settlements.iter().zip(mark_steps.iter().cycle()) {
            // Each entry is settled once; the ledger may have it before the counter does.
            if ledger.contains_key(seq) {
                continue;
            }
            ledger.insert(*seq, *amount);
            budget.current.settle(*amount, Some(*seq));
            // Only a run without gaps is ever marked: what is still to come lies past it.
            let complete = (1..).take_while(|seq| ledger.contains_key(seq)).last().unwrap_or(0);
            mark = (mark + step).min(complete).max(mark);
            let base: u64 = ledger.range(..=mark).map(|(_, amount)| amount).sum();
            budget.set_base(november(), BudgetBase { spent: i64::try_from(base).unwrap(), mark }, at("2026-11-29T12:00:00Z"));
            prop_assert_eq!(spent(&budget), i128::from(ledger.values().sum::<u64>()));
        }
    }
}

#[test]
fn a_long_absence_of_the_ledger_costs_bounded_memory_and_never_forgets_spend() {
    let mut budget = budget();
    let entries = 10 * SINCE_ENTRIES_MAX as u64;
    for seq in 1..=entries {
        budget.current.settle(1, Some(seq));
    }
    assert!(budget.current.since.len() <= SINCE_ENTRIES_MAX);
    assert_eq!(spent(&budget), i128::from(entries));
    for mark in (1..entries).step_by(7) {
        let mut budget = budget.clone();
        let spent_by_then = mark.cast_signed();
        budget.set_base(
            november(),
            BudgetBase {
                spent: spent_by_then,
                mark,
            },
            at("2026-11-29T12:00:00Z"),
        );
        assert!(spent(&budget) >= i128::from(entries), "mark {mark}");
    }
    budget.set_base(
        november(),
        BudgetBase {
            spent: entries.cast_signed(),
            mark: entries,
        },
        at("2026-11-29T12:00:00Z"),
    );
    assert_eq!(spent(&budget), i128::from(entries));
}
