use domain::limits::Scope;

use super::*;
use crate::fixture::{limit, on};

#[test]
fn three_failures_in_a_row_and_no_fewer_lead_to_counters_of_ones_own() {
    let health = Health::new();
    health.came_back(false, 0);
    assert_eq!(health.mode(0), Mode::Normal);
    assert!(!health.failed());
    assert!(!health.failed());
    health.succeeded();
    assert!(!health.failed());
    assert!(!health.failed());
    assert_eq!(health.mode(0), Mode::Normal);
    assert!(health.failed());
    assert_eq!(health.mode(0), Mode::Degraded { share_percent: 45 });
    assert!(!health.failed(), "told once");
}

#[test]
fn calls_that_wait_side_by_side_are_one_silence() {
    let health = Health::new();
    health.came_back(false, 0);
    for _ in 0..100 {
        assert!(!health.was_silent(Duration::from_secs(3_600)));
    }
    assert_eq!(health.mode(0), Mode::Normal);
    assert!(!health.was_silent(Duration::ZERO));
    assert!(health.was_silent(Duration::ZERO));
    assert_eq!(health.mode(0), Mode::Degraded { share_percent: 45 });
}

#[test]
fn three_missed_beats_do_so_too_though_calls_are_answered_in_between() {
    let health = Health::new();
    health.came_back(false, 0);
    for _ in 0..2 {
        assert!(!health.missed_beat());
        health.succeeded();
    }
    health.heard_beat();
    for _ in 0..2 {
        assert!(!health.missed_beat());
        health.succeeded();
    }
    assert!(health.missed_beat());
    assert_eq!(health.mode(0), Mode::Degraded { share_percent: 45 });
}

#[test]
fn all_gateways_together_stay_below_the_whole() {
    for gateways in 1..=90 {
        let percent = share_percent(gateways);
        assert!(percent >= 1 && percent * gateways <= SHARES_PERCENT.max(SHARE_PERCENT_MAX * gateways.min(2)));
    }
}

#[test]
fn the_share_rises_to_the_whole_within_half_a_minute() {
    let health = Health::new();
    health.saw_gateways(3);
    health.came_back(true, 1_000);
    let share = |now_ms| match health.mode(now_ms) {
        Mode::Returning { share_percent } => share_percent,
        Mode::Normal => 100,
        Mode::Degraded { .. } => 0,
    };
    let shares = [1_000, 11_000, 21_000, 30_999, 31_000].map(share);
    assert_eq!(shares, [30, 53, 76, 99, 100]);
}

#[test]
fn what_admits_something_still_does_and_budgets_stay() {
    let of = on(
        Scope::Global,
        vec![
            limit(Dimension::Requests, 1),
            limit(Dimension::Requests, 0),
            limit(Dimension::InputTokens, 1_000),
            limit(Dimension::BudgetCost, 1_000),
            limit(Dimension::RequestInputTokens, 1_000),
        ],
    );
    let values: Vec<u64> = scaled(&of, 45).limits.iter().map(|limit| limit.value).collect();
    assert_eq!(values, [1, 0, 450, 1_000, 1_000]);
}
