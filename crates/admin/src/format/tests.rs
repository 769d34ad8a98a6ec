use chrono::{TimeZone, Utc};
use domain::money::Nanos;
use domain::policy::Settings;
use domain::prices::Unpriced;

use super::*;

fn format() -> Format {
    Format::new(&Settings {
        time_zone: chrono_tz::Europe::Zurich,
        currency: "CHF".to_owned(),
        unpriced: Unpriced::Refuse,
        rehearsal_percent: None,
    })
}

#[test]
fn sums_have_currency_separators_and_two_places() {
    assert_eq!(format().money(Nanos::from_units(1_234_567)), "CHF\u{a0}1,234,567.00");
    assert_eq!(format().money(Nanos::from_units(-1_000)), "CHF\u{a0}\u{2212}1,000.00");
    assert_eq!(format().money(Nanos::from_units(999)), "CHF\u{a0}999.00");
}

#[test]
fn a_cost_below_one_unit_keeps_the_digits_that_matter() {
    assert_eq!(format().cost(Nanos(1_250_000)), "CHF\u{a0}0.001250");
    assert_eq!(format().cost(Nanos::ZERO), "CHF\u{a0}0.00");
    assert_eq!(format().cost(Nanos::from_units(2)), "CHF\u{a0}2.00");
}

#[test]
fn times_are_in_the_billing_zone_and_name_it() {
    let winter = Utc.with_ymd_and_hms(2026, 11, 29, 23, 30, 5).unwrap();
    let summer = Utc.with_ymd_and_hms(2026, 7, 1, 12, 0, 0).unwrap();
    assert_eq!(format().time(winter), "30 Nov 2026, 00:30:05 CET");
    assert_eq!(format().minute(summer), "1 Jul 2026, 14:00 CEST");
}

#[test]
fn durations_change_their_unit() {
    assert_eq!(duration_ms(840), "840 ms");
    assert_eq!(duration_ms(12_450), "12.4 s");
    assert_eq!(duration_ms(200_000), "3 min 20 s");
    assert_eq!(duration_ms(7_260_000), "2 h 1 min");
}

#[test]
fn percent_reaches_a_hundred_only_when_all_is_spent() {
    assert_eq!(percent(999, 1_000), Some(99));
    assert_eq!(percent(1_000, 1_000), Some(100));
    assert_eq!(percent(i64::MAX, 1), Some(i64::MAX));
    assert_eq!(percent(5, 0), None);
}

#[test]
fn sizes_change_their_unit() {
    assert_eq!(bytes(512), "512 B");
    assert_eq!(bytes(1_536), "1.5 KiB");
    assert_eq!(bytes(5 * 1_024 * 1_024), "5.0 MiB");
}

#[test]
fn a_share_is_neither_nothing_nor_all_unless_it_is() {
    for (part, whole, text) in [
        (0, 0, "–"),
        (0, 7, "0 %"),
        (1, 1_000, "under 1 %"),
        (1, 3, "33 %"),
        (1, 2, "50 %"),
        (2, 3, "67 %"),
        (999, 1_000, "over 99 %"),
        (7, 7, "100 %"),
        (u64::MAX, u64::MAX, "100 %"),
    ] {
        assert_eq!(super::share(part, whole), text, "{part} of {whole}");
    }
}

#[test]
fn a_price_of_zero_is_free_and_an_amount_of_zero_is_not() {
    assert_eq!(
        (format().rate(0), format().bare_rate(0)),
        ("free".to_owned(), "free".to_owned())
    );
    assert_eq!(format().bare_rate(1), "0.000000001");
    assert_eq!(format().exact(Nanos::ZERO), "CHF\u{a0}0.00");
}
