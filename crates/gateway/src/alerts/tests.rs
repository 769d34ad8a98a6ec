//! What is to be written of what was seen, with Postgres or without.

use std::sync::atomic::{AtomicU64, Ordering};

use limits::Now;
use store::random::SystemRandom;

use super::*;

#[derive(Default)]
struct MovedClock(AtomicU64);

impl MovedClock {
    fn skip(&self, seconds: u64) {
        self.0.fetch_add(seconds * 1_000, Ordering::SeqCst);
    }
}

impl Clock for MovedClock {
    fn now(&self) -> Now {
        let monotonic_ms = self.0.load(Ordering::SeqCst);
        Now {
            monotonic_ms,
            wall: DateTime::from_timestamp_millis(1_700_000_000_000 + monotonic_ms as i64).expect("a time"),
        }
    }
}

fn alerts() -> (Alerts, Arc<MovedClock>) {
    let clock = Arc::new(MovedClock::default());
    (Alerts::new(clock.clone(), Arc::new(SystemRandom)), clock)
}

fn lost_counters(alerts: &Alerts) {
    alerts.hold(AlertKind::Counters, AlertSubject::Gateway, || "lost".to_owned());
}

fn counters_are_back(alerts: &Alerts) {
    alerts.clear(AlertKind::Counters, &AlertSubject::Gateway);
}

/// What is to be written after time went by.
fn due(alerts: &Alerts, clock: &MovedClock, seconds: u64) -> Vec<Alert> {
    clock.skip(seconds);
    alerts.turn_all();
    alerts.due("gateway")
}

#[test]
fn an_alert_is_to_be_written_when_it_is_raised_now_and_then_and_when_it_is_over() {
    let (alerts, clock) = alerts();
    lost_counters(&alerts);
    let raised = due(&alerts, &clock, 0);
    assert_eq!(raised.len(), 1);
    assert!(raised[0].is_open());
    alerts.written(&raised[0], Some(raised[0].clone()));
    assert_eq!(due(&alerts, &clock, 1), []);
    assert_eq!(due(&alerts, &clock, 10), raised, "it is still there");
    counters_are_back(&alerts);
    assert_eq!(due(&alerts, &clock, 29)[0].cleared_at, None);
    let over = due(&alerts, &clock, 1);
    assert_eq!((over.len(), over[0].id, over[0].is_open()), (1, raised[0].id, false));
    alerts.written(&over[0], Some(over[0].clone()));
    assert_eq!(due(&alerts, &clock, 100), []);
    assert!(alerts.book.lock().watched.is_empty(), "nothing is left behind");
}

#[test]
fn what_comes_and_goes_while_nothing_can_be_written_is_one_alert_that_counts() {
    let (alerts, clock) = alerts();
    let mut ids = Vec::new();
    for round in 1..=5 {
        lost_counters(&alerts);
        counters_are_back(&alerts);
        let over = due(&alerts, &clock, 30);
        assert_eq!((over.len(), over[0].is_open(), over[0].count), (1, false, round));
        ids.push(over[0].id);
    }
    ids.dedup();
    assert_eq!(ids.len(), 1);
    lost_counters(&alerts);
    let open = due(&alerts, &clock, 0);
    assert_eq!((open[0].is_open(), open[0].count), (true, 6));
}

#[test]
fn what_others_have_cleared_meanwhile_is_another_alert_if_it_is_still_so() {
    let (alerts, clock) = alerts();
    lost_counters(&alerts);
    let first = due(&alerts, &clock, 0);
    alerts.written(&first[0], Some(first[0].clone()));
    let again = due(&alerts, &clock, 60);
    alerts.written(&again[0], None);
    let second = due(&alerts, &clock, 0);
    assert_eq!(second.len(), 1);
    assert_ne!(second[0].id, first[0].id);
    // And if it is over, nobody needs to hear of it again.
    counters_are_back(&alerts);
    let over = due(&alerts, &clock, 30);
    alerts.written(&over[0], None);
    assert_eq!(due(&alerts, &clock, 100), []);
}

#[test]
fn an_earlier_runs_alert_goes_on_under_its_id() {
    let (alerts, clock) = alerts();
    lost_counters(&alerts);
    let mine = due(&alerts, &clock, 0).remove(0);
    let earlier = Alert {
        id: Uuid::from_u128(7),
        raised_at: mine.raised_at - chrono::Duration::minutes(5),
        count: 3,
        ..mine.clone()
    };
    alerts.resume(earlier.clone());
    let goes_on = due(&alerts, &clock, 0).remove(0);
    assert_eq!(
        (goes_on.id, goes_on.raised_at, goes_on.count),
        (earlier.id, earlier.raised_at, 4)
    );
}

#[test]
fn no_more_is_watched_than_the_bound() {
    let (alerts, clock) = alerts();
    for number in 0..=WATCHED_MAX {
        alerts.unpriced(&format!("model-{number}"), true);
    }
    assert_eq!(due(&alerts, &clock, 0).len(), WATCHED_MAX);
}

#[test]
fn a_breaker_raises_while_it_is_open_and_is_over_when_the_status_leaves_it_out() {
    let (alerts, clock) = alerts();
    let mut breaker = BreakerStatus {
        upstream_id: UpstreamId(Uuid::from_u128(1)),
        upstream_model: Some("model".to_owned()),
        state: BreakerState::Cooling,
        since: clock.now().wall,
        until: None,
        reason: "5 failures in a row".to_owned(),
    };
    let see = |breaker: Option<&BreakerStatus>| {
        let listed: Vec<BreakerStatus> = breaker.into_iter().cloned().collect();
        alerts.observe(&[], &listed, |_| Some("Account A".to_owned()));
    };
    see(Some(&breaker));
    assert_eq!(due(&alerts, &clock, 10), [], "the provider's own limit");
    breaker.state = BreakerState::Open;
    alerts.breaker("Account A", &breaker);
    see(Some(&breaker));
    breaker.state = BreakerState::HalfOpen;
    see(Some(&breaker));
    breaker.state = BreakerState::Open;
    breaker.since = clock.now().wall;
    see(Some(&breaker));
    let open = due(&alerts, &clock, 2);
    assert_eq!((open.len(), open[0].count), (1, 2), "it opened twice");
    assert_eq!(
        open[0].message,
        "Account A takes no requests for model: 5 failures in a row"
    );
    see(None);
    assert!(due(&alerts, &clock, 59)[0].is_open());
    assert!(!due(&alerts, &clock, 1)[0].is_open());
}
