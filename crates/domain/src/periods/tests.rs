//! Periods follow the local calendar, clock changes included, and tile time without gaps.

use chrono::{DateTime, Duration, TimeZone, Utc};
use chrono_tz::{America, Asia, Europe, Tz};
use proptest::prelude::*;

use super::{Month, Period, bucket_start, end_of_day, months_after};

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

/// From when on every boundary in every zone is one of a bucket. Before, hours that end where the clock is changed did not:
/// Antarctica/Casey changed it at one minute past midnight until 2023, America/St_Johns and America/Goose_Bay until
/// 2011; nor did days in Africa/Monrovia, whose offset had odd seconds until January 1972.
const WHOLE_BUCKETS_FROM: &str = "2024-01-01T00:00:00Z";
const DAYS_WHOLE_BUCKETS_FROM: &str = "1972-02-01T00:00:00Z";
/// Changes of clocks are tried one by one until then; later ones follow the same rules.
const CHANGES_UNTIL: &str = "2029-01-01T00:00:00Z";

/// Every change of a zone's clock, to the second.
fn clock_changes(zone: Tz, from: DateTime<Utc>, until: DateTime<Utc>) -> Vec<DateTime<Utc>> {
    let offset = |at| super::offset_at(at, zone);
    let step = Duration::days(7);
    let mut changes = Vec::new();
    let mut at = from;
    while at < until {
        if offset(at) != offset(at + step) {
            changes.push(super::clock_change(at, at + step, offset));
        }
        at += step;
    }
    changes
}

/// What must hold of the period of `at` and its neighbours.
fn assert_tiles(period: Period, at: DateTime<Utc>, zone: Tz) {
    let span = period.span(at, zone);
    assert!(span.contains(at), "{zone} {period} {at}: {span:?}");
    let moment = Duration::nanoseconds(1);
    assert_eq!(period.span(span.start, zone), span, "{zone} {period} {at}: the start");
    assert_eq!(
        period.span(span.end - moment, zone),
        span,
        "{zone} {period} {at}: the end"
    );
    let (before, after) = (period.span(span.start - moment, zone), period.span(span.end, zone));
    assert_eq!(before.end, span.start, "{zone} {period} {at}: a gap or overlap before");
    assert_eq!(after.start, span.end, "{zone} {period} {at}: a gap or overlap after");
}

#[test]
fn periods_tile_time_in_whole_buckets_around_every_change_of_a_clock() {
    let (from, until) = (at(WHOLE_BUCKETS_FROM), at(CHANGES_UNTIL));
    for zone in chrono_tz::TZ_VARIANTS {
        for change in clock_changes(zone, from, until) {
            for minutes in [-61, -1, 0, 29, 31, 1_440] {
                for period in Period::ALL {
                    let at = change + Duration::minutes(minutes);
                    assert_tiles(period, at, zone);
                    let span = period.span(at, zone);
                    assert_eq!(bucket_start(span.start), span.start, "{zone} {period} {span:?}");
                }
            }
        }
    }
}

#[test]
fn the_days_of_a_clock_change_are_an_hour_shorter_and_longer() {
    let hours = |day: &str, zone: Tz| {
        let span = Period::Day.span(at(day), zone);
        (span.end - span.start).num_minutes()
    };
    assert_eq!(hours("2026-03-29T12:00:00Z", Europe::Berlin), 23 * 60);
    assert_eq!(hours("2026-10-25T12:00:00Z", Europe::Berlin), 25 * 60);
    assert_eq!(hours("2026-03-08T17:00:00Z", America::New_York), 23 * 60);
    assert_eq!(hours("2026-11-01T17:00:00Z", America::New_York), 25 * 60);
    // Half an hour, and midnight itself is skipped.
    assert_eq!(hours("2026-10-04T02:00:00Z", Tz::Australia__Lord_Howe), 23 * 60 + 30);
    assert_eq!(hours("2026-04-24T12:00:00Z", Tz::Africa__Cairo), 23 * 60);
}

#[test]
fn an_hour_in_which_the_clock_is_changed_is_cut_there() {
    // Lord Howe goes from 02:00 back to 01:30 on 2026-04-05.
    let zone = Tz::Australia__Lord_Howe;
    let before = Period::Hour.span(at("2026-04-04T14:45:00Z"), zone);
    assert_eq!(
        (before.start, before.end),
        (at("2026-04-04T14:00:00Z"), at("2026-04-04T15:00:00Z"))
    );
    let after = Period::Hour.span(at("2026-04-04T15:10:00Z"), zone);
    assert_eq!(
        (after.start, after.end),
        (at("2026-04-04T15:00:00Z"), at("2026-04-04T15:30:00Z"))
    );
}

#[test]
fn a_day_ends_where_the_next_begins() {
    let day = "2026-12-15".parse().expect("a day");
    assert_eq!(end_of_day(day, Asia::Tokyo), at("2026-12-15T15:00:00Z"));
    let before = "2026-04-23".parse().expect("a day");
    assert_eq!(end_of_day(before, Tz::Africa__Cairo), at("2026-04-23T22:00:00Z"));
}

proptest! {
    #[test]
    fn periods_of_every_zone_tile_time(
        seconds in 0_i64..2_500_000_000,
        nanos in 0_u32..1_000_000_000,
        zone in prop::sample::select(&chrono_tz::TZ_VARIANTS[..]),
    ) {
        let at = Utc.timestamp_opt(seconds, nanos).single().expect("an instant");
        for period in Period::ALL {
            assert_tiles(period, at, zone);
        }
        let month = Month::containing(at, zone).span(zone);
        prop_assert_eq!(month, Period::Month.span(at, zone), "the report's month is the budget's");
    }

    #[test]
    fn periods_tile_time_around_the_changes_of_a_year(
        year in 1970_i32..2050,
        zone in prop::sample::select(&chrono_tz::TZ_VARIANTS[..]),
        minutes in -1_600_i64..1_600,
    ) {
        let first = Utc.with_ymd_and_hms(year, 1, 1, 0, 0, 0).single().expect("an instant");
        for change in clock_changes(zone, first, first + Duration::days(366)) {
            for period in Period::ALL {
                assert_tiles(period, change + Duration::minutes(minutes), zone);
            }
        }
    }

    #[test]
    fn days_weeks_and_months_are_whole_buckets_in_every_zone(
        seconds in at(DAYS_WHOLE_BUCKETS_FROM).timestamp()..2_500_000_000,
        zone in prop::sample::select(&chrono_tz::TZ_VARIANTS[..]),
    ) {
        let at = Utc.timestamp_opt(seconds, 0).single().expect("an instant");
        for period in [Period::Day, Period::Week, Period::Month] {
            let span = period.span(at, zone);
            prop_assert_eq!(bucket_start(span.end), span.end);
        }
    }
}
