//! Whoever waits is left in peace, however many share a key; whoever does not is counted.

use chrono::Duration;
use domain::ledger::Rejection;
use domain::refusals::RefusalCode;

use super::{EXCUSE_MS, KINDS_MAX, Waits};
use crate::clock::minute_of;
use crate::rejections::tests::{rejection, start};

/// A refusal so many milliseconds after the start, told to wait so many seconds.
fn refused(key: u128, at_ms: i64, wait_seconds: i64) -> Rejection {
    let at = start() + Duration::milliseconds(at_ms);
    Rejection {
        retry_after_seconds: Some(wait_seconds),
        ..rejection(key, RefusalCode::RateLimitExceeded, at)
    }
}

/// How many refusals at these times are early, all of one key that is told to wait five seconds each time.
fn early(times_ms: impl IntoIterator<Item = i64>) -> usize {
    let mut waits = Waits::default();
    times_ms
        .into_iter()
        .filter(|at_ms| waits.note(&refused(1, *at_ms, 5)))
        .count()
}

#[test]
fn a_caller_that_waits_is_never_early() {
    assert_eq!(early((0..20).map(|round| round * 5_000)), 0);
    assert_eq!(early((0..20).map(|round| round * 7_300)), 0);
}

#[test]
fn a_caller_that_comes_back_each_second_is_early_each_time_but_the_first() {
    assert_eq!(early((0..60).map(|second| second * 1_000)), 59);
}

#[test]
fn requests_that_were_on_their_way_are_not_early_and_each_wait_excuses_one() {
    // Ten callers at once, who all wait, for ten rounds.
    let polite = (0..10).flat_map(|round| (0..10).map(move |caller| round * 5_500 + caller * 50));
    assert_eq!(early(polite.clone()), 0);
    // An eleventh comes in between each time.
    let mut times: Vec<i64> = polite.chain((0..10).map(|round| round * 5_500 + 3_000)).collect();
    times.sort_unstable();
    let share = early(times);
    assert!((10..=20).contains(&share), "{share}");
}

#[test]
fn what_counts_is_when_a_request_arrived_and_not_how_long_it_queued() {
    let mut waits = Waits::default();
    assert!(!waits.note(&refused(1, 0, 5)));
    let queued = |at_ms, queue_ms| Rejection {
        queue_ms,
        ..refused(1, at_ms, 5)
    };
    assert!(waits.note(&queued(6_000, 3_000)), "it arrived after three seconds");
    assert!(!waits.note(&queued(20_000, 9_000)), "it arrived after eleven seconds");
}

#[test]
fn other_keys_and_other_refusals_have_waits_of_their_own() {
    let mut waits = Waits::default();
    assert!(!waits.note(&refused(1, 0, 60)));
    assert!(!waits.note(&refused(2, 2_000, 60)), "another key");
    let other = Rejection {
        code: RefusalCode::ConcurrencyLimitExceeded,
        ..refused(1, 2_000, 60)
    };
    assert!(!waits.note(&other), "another reason");
    let untold = Rejection {
        retry_after_seconds: None,
        ..refused(1, 2_000, 0)
    };
    assert!(!waits.note(&untold), "a refusal that time does not heal");
    assert!(waits.note(&refused(1, 2_000, 60)));
}

#[test]
fn a_wait_of_days_is_kept_for_an_hour() {
    let mut waits = Waits::default();
    let day_seconds = 24 * 3_600;
    assert!(!waits.note(&refused(1, 0, day_seconds)));
    assert!(waits.note(&refused(1, 10 * 60_000, day_seconds)));
    assert!(!waits.note(&refused(1, 80 * 60_000, day_seconds)));
}

#[test]
fn what_is_over_is_forgotten_and_what_is_kept_has_a_bound() {
    let mut waits = Waits::default();
    for key in 0..KINDS_MAX as u128 + 10 {
        waits.note(&refused(key, 0, 5));
    }
    assert_eq!(waits.kinds.len(), KINDS_MAX);
    assert!(
        !waits.note(&refused(KINDS_MAX as u128 + 5, 2_000, 5)),
        "it has no place"
    );
    waits.forget(minute_of(start()));
    assert_eq!(waits.kinds.len(), KINDS_MAX);
    waits.forget(minute_of(start() + Duration::milliseconds(60_000 + EXCUSE_MS)));
    assert_eq!(waits.kinds.len(), 0);
}
