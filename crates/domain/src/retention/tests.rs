use chrono_tz::{America, Asia, UTC};
use proptest::prelude::*;

use super::*;

fn at(text: &str) -> DateTime<Utc> {
    text.parse().expect("an instant")
}

#[test]
fn whole_months_are_kept_beside_the_current_one() {
    let cases = [
        ("2026-11-15T00:00:00Z", UTC, 1, "2026-10-01T00:00:00Z"),
        ("2026-11-15T00:00:00Z", UTC, 12, "2025-11-01T00:00:00Z"),
        // November has begun in Tokyo, and September's last hours in UTC are its October.
        ("2026-10-31T15:00:00Z", Asia::Tokyo, 1, "2026-09-01T00:00:00Z"),
        ("2026-10-31T14:59:59Z", Asia::Tokyo, 1, "2026-08-01T00:00:00Z"),
        // In Los Angeles it is still October, which has begun after its first midnight in UTC.
        ("2026-11-01T06:59:59Z", America::Los_Angeles, 1, "2026-09-01T00:00:00Z"),
        ("2026-11-01T07:00:00Z", America::Los_Angeles, 1, "2026-10-01T00:00:00Z"),
    ];
    for (now, zone, months, from) in cases {
        assert_eq!(entries_from(at(now), zone, months), at(from), "{now} {zone} {months}");
    }
}

proptest! {
    #[test]
    fn nothing_of_a_month_that_is_to_be_kept_is_dropped(
        seconds in 1_500_000_000_i64..2_500_000_000,
        months in 1_u16..60,
        zone in prop::sample::select(vec![UTC, Asia::Tokyo, America::Los_Angeles, Asia::Kolkata]),
    ) {
        let now = DateTime::from_timestamp(seconds, 0).expect("an instant");
        let from = entries_from(now, zone, months);
        let mut first = Month::containing(now, zone);
        for _ in 0..months {
            first = first.previous();
        }
        let start = first.span(zone).start;
        prop_assert!(from <= start);
        // And no whole month more.
        prop_assert!(Month::containing(from, UTC).next().span(UTC).start > start);
        prop_assert_eq!(from.day(), 1);
    }
}
