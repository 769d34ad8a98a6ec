//! Periods follow the local calendar, clock changes included, and tile time without gaps.

use chrono::{DateTime, Duration, TimeZone, Utc};
use chrono_tz::{America, Asia, Europe, Tz};
use proptest::prelude::*;

use super::{Month, Period, bucket_start, months_after};

fn at(text: &str) -> DateTime<Utc> {
    text.parse().expect("an instant")
}

#[test]
fn a_month_starts_at_local_midnight() {
    let span = Period::Month.span(at("2026-11-30T16:00:00Z"), Asia::Tokyo);
    assert_eq!(span.start, at("2026-11-30T15:00:00Z"));
    assert_eq!(span.end, at("2026-12-31T15:00:00Z"));
}

#[test]
fn a_month_with_a_clock_change_keeps_its_local_edges() {
    let span = Period::Month.span(at("2026-03-15T12:00:00Z"), Europe::Berlin);
    assert_eq!(span.start, at("2026-02-28T23:00:00Z"));
    assert_eq!(span.end, at("2026-03-31T22:00:00Z"));
}

#[test]
fn a_day_whose_midnight_does_not_exist_starts_when_the_clock_has_moved() {
    // Santiago went from 24:00 to 01:00 on 2022-09-11.
    let span = Period::Day.span(at("2022-09-11T12:00:00Z"), America::Santiago);
    assert_eq!(span.start, at("2022-09-11T04:00:00Z"));
}

#[test]
fn a_week_starts_on_monday() {
    let span = Period::Week.span(at("2026-11-29T12:00:00Z"), chrono_tz::UTC);
    assert_eq!(span.start, at("2026-11-23T00:00:00Z"));
}

#[test]
fn a_lifetime_of_a_month_counts_from_creation_and_clamps() {
    assert_eq!(
        months_after(at("2026-01-31T10:00:00Z"), 1, chrono_tz::UTC),
        at("2026-02-28T10:00:00Z")
    );
    assert_eq!(
        months_after(at("2026-10-15T10:00:00Z"), 1, chrono_tz::UTC),
        at("2026-11-15T10:00:00Z")
    );
}

#[test]
fn a_month_is_read_strictly() {
    assert_eq!(
        "2026-11".parse::<Month>().map(|month| month.to_string()),
        Ok("2026-11".to_owned())
    );
    for bad in ["2026", "2026-13", "26-11", "2026-1", "2026-11-01", "", "9999-12"] {
        assert!(bad.parse::<Month>().is_err(), "{bad}");
    }
}

proptest! {
    #[test]
    fn periods_tile_time(seconds in 0_i64..4_000_000_000, zone in prop::sample::select(vec![
        chrono_tz::UTC, Europe::Berlin, Asia::Kolkata, Asia::Kathmandu, America::New_York, America::Santiago, Tz::Australia__Lord_Howe,
    ])) {
        let at = Utc.timestamp_opt(seconds, 0).single().expect("an instant");
        for period in Period::ALL {
            let span = period.span(at, zone);
            prop_assert!(span.contains(at), "{period} {span:?}");
            prop_assert_eq!(period.span(span.end, zone).start, span.end);
            prop_assert_eq!(period.span(span.end - Duration::seconds(1), zone), span);
        }
    }

    #[test]
    fn months_and_days_are_whole_buckets(seconds in 1_000_000_000_i64..4_000_000_000, zone in prop::sample::select(vec![
        chrono_tz::UTC, Europe::Berlin, Asia::Kolkata, Asia::Kathmandu, America::New_York,
    ])) {
        let at = Utc.timestamp_opt(seconds, 0).single().expect("an instant");
        for period in [Period::Day, Period::Month] {
            let span = period.span(at, zone);
            prop_assert_eq!(bucket_start(span.start), span.start);
        }
    }
}
