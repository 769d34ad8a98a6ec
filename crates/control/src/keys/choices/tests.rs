//! A life as long as the one before is what a key that has expired is offered first.

use chrono::{DateTime, TimeDelta, Utc};
use chrono_tz::Tz;
use domain::periods::months_after;

use super::EndChoices;

fn at(text: &str) -> DateTime<Utc> {
    text.parse().expect("an instant")
}

fn check(now: &str, offered: &[u32], life_days: i64, expected: Option<u32>) {
    let now = at(now);
    let lifetimes = offered
        .iter()
        .map(|months| (*months, months_after(now, *months, Tz::UTC)));
    let ends = EndChoices {
        is_endless: false,
        latest: None,
        lifetimes: lifetimes.collect(),
    };
    assert_eq!(ends.like(TimeDelta::days(life_days), now), expected);
}

#[test]
fn a_life_is_offered_that_is_about_as_long_as_before() {
    check("2026-02-01T00:00:00Z", &[1, 3, 6], 31, Some(1));
    check("2026-02-01T00:00:00Z", &[1, 3, 6], 60, Some(3));
    check("2026-02-01T00:00:00Z", &[1, 3, 6], 92, Some(3));
    check("2026-02-01T00:00:00Z", &[1, 3], 365, Some(3));
    check("2026-02-01T00:00:00Z", &[], 31, None);
}
