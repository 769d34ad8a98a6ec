//! What is noted: each threshold once, of each period, within bounds.

use domain::budget_events::Thresholds;
use domain::ids::LimitId;
use domain::limits::{Dimension, Mode, Target};
use domain::periods::Period;
use store::random::SystemRandom;
use uuid::Uuid;

use super::*;

fn at(text: &str) -> DateTime<Utc> {
    text.parse().expect("an instant")
}

fn budget(period: Period, value: u64) -> Limit {
    Limit {
        id: LimitId(Uuid::nil()),
        target: Target::Node(Scope::Global),
        dimension: Dimension::BudgetCost,
        value,
        increase: None,
        window_seconds: 60,
        burst: None,
        period,
        model: None,
        priority: None,
        mode: Mode::Enforce,
        gates: None,
        thresholds: Thresholds::default(),
    }
}

fn node(limit: &Limit) -> ScopeLimits {
    ScopeLimits::new(Scope::Global, Arc::from([limit.clone()]))
}

fn see(events: &BudgetEvents, limit: &Limit, spent: i64, when: &str) {
    let seen = Seen {
        node: &node(limit),
        limit,
        span: limit.period.span(at(when), Tz::UTC),
        value: limit.value,
        spent,
    };
    events.see(&seen, at(when), &SystemRandom);
}

fn waiting(events: &BudgetEvents) -> Vec<u8> {
    let mut percents: Vec<u8> = events.next_reached().iter().map(|event| event.percent).collect();
    percents.sort_unstable();
    percents
}

#[test]
fn a_threshold_waits_once_and_is_not_noted_again_when_it_is_told() {
    let events = BudgetEvents::default();
    let limit = budget(Period::Day, 100);
    see(&events, &limit, 49, "2026-11-29T12:00:00Z");
    assert_eq!(waiting(&events), [0_u8; 0]);
    see(&events, &limit, 60, "2026-11-29T12:00:00Z");
    see(&events, &limit, 85, "2026-11-29T13:00:00Z");
    assert_eq!(waiting(&events), [50, 80]);
    events.told(&events.next_reached());
    // Raised, and reached again.
    see(&events, &budget(Period::Day, 200), 180, "2026-11-29T14:00:00Z");
    assert_eq!(waiting(&events), [0_u8; 0]);
    let span = Period::Day.span(at("2026-11-29T14:00:00Z"), Tz::UTC);
    assert!(!events.has_told_all(&node(&limit), &limit, span));
    see(&events, &limit, 100, "2026-11-29T15:00:00Z");
    assert_eq!(waiting(&events), [100]);
    assert!(events.has_told_all(&node(&limit), &limit, span));
    events.told(&events.next_reached());
    // Another day.
    see(&events, &limit, 60, "2026-11-30T00:00:00Z");
    assert_eq!(waiting(&events), [50]);
}

#[test]
fn what_is_told_is_forgotten_a_day_after_its_period() {
    let events = BudgetEvents::default();
    let limit = budget(Period::Day, 100);
    see(&events, &limit, 60, "2026-11-29T12:00:00Z");
    events.told(&events.next_reached());
    events.forget_ended(at("2026-11-30T23:59:59Z"));
    see(&events, &limit, 60, "2026-11-29T12:00:00Z");
    assert_eq!(waiting(&events), [0_u8; 0]);
    events.forget_ended(at("2026-12-01T00:00:00Z"));
    see(&events, &limit, 60, "2026-11-29T12:00:00Z");
    assert_eq!(waiting(&events), [50], "Postgres knows it");
}

#[test]
fn nodes_are_looked_at_by_the_quarter_of_an_hour_and_within_bounds() {
    let events = BudgetEvents::default();
    let node = node(&budget(Period::Day, 100));
    let silent = ScopeLimits::new(
        Scope::Model("m".into()),
        Arc::from([Limit {
            thresholds: Thresholds::NONE,
            ..budget(Period::Day, 100)
        }]),
    );
    for minute in ["00", "14", "15"] {
        events.touch([&node, &silent].into_iter(), at(&format!("2026-11-29T12:{minute}:30Z")));
    }
    let taken = events.take_touched().expect("a node");
    assert_eq!(taken, (at("2026-11-29T12:00:00Z"), vec![Scope::Global]));
    events.touch_again(taken.0, &taken.1);
    assert_eq!(events.take_touched(), Some(taken));
    assert_eq!(
        events.take_touched(),
        Some((at("2026-11-29T12:15:00Z"), vec![Scope::Global]))
    );
    assert_eq!(events.take_touched(), None);

    let users: Vec<ScopeLimits> = (0..=TOUCHED_MAX)
        .map(|number| {
            let user = Scope::User(TenantId(Uuid::nil()), number.to_string().into());
            ScopeLimits::new(user, Arc::clone(&node.limits))
        })
        .collect();
    events.touch(users.iter(), at("2026-11-29T12:00:00Z"));
    let mut count = 0;
    while let Some((_, scopes)) = events.take_touched() {
        assert!(scopes.len() <= LOOKED_AT_ONCE);
        count += scopes.len();
    }
    assert_eq!(count, TOUCHED_MAX);
}

#[test]
fn a_period_that_has_just_ended_is_looked_at_where_the_limit_was_there() {
    let now = at("2026-12-01T12:00:00Z");
    let ended = |limit: &Limit| just_ended(limit, now, Tz::UTC).map(|span| span.start);
    assert_eq!(ended(&budget(Period::Month, 1)), Some(at("2026-11-01T00:00:00Z")));
    assert_eq!(ended(&budget(Period::Week, 1)), None, "it ended a day and a half ago");
    let made = |when: &str| Limit {
        id: LimitId::new(at(when), [0; 10]),
        ..budget(Period::Month, 1)
    };
    assert_eq!(ended(&made("2026-11-30T23:59:59Z")), Some(at("2026-11-01T00:00:00Z")));
    assert_eq!(ended(&made("2026-12-01T00:00:01Z")), None, "nobody had set it");
}
