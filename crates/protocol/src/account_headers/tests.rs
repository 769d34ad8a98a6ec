//! What providers say of their limits is read, and nothing they send does harm.

use std::time::Duration;

use chrono::{DateTime, TimeZone as _, Utc};
use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;

use super::{AccountRoom, COOLING_BY_RESET_MAX, Left, RESET_MAX, cooling, time_until};

fn now() -> DateTime<Utc> {
    Utc.with_ymd_and_hms(2026, 3, 1, 12, 0, 0).single().expect("a time")
}

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    pairs
        .iter()
        .map(|(name, value)| {
            let value = HeaderValue::from_str(value).expect("a value");
            (HeaderName::from_static(name), value)
        })
        .collect()
}

fn left(limit: u64, remaining: u64, reset_ms: u64) -> Option<Left> {
    Some(Left {
        limit: Some(limit),
        remaining,
        reset: Some(Duration::from_millis(reset_ms)),
    })
}

#[test]
fn openais_headers_are_read() {
    let said = headers(&[
        ("x-ratelimit-limit-requests", "500"),
        ("x-ratelimit-remaining-requests", "499"),
        ("x-ratelimit-reset-requests", "120ms"),
        ("x-ratelimit-limit-tokens", "30000"),
        ("x-ratelimit-remaining-tokens", "29000"),
        ("x-ratelimit-reset-tokens", "6m0s"),
    ]);
    let expected = AccountRoom {
        requests: left(500, 499, 120),
        total_tokens: left(30_000, 29_000, 360_000),
        ..AccountRoom::default()
    };
    assert_eq!(AccountRoom::read(&said, now()), expected);
}

#[test]
fn anthropics_headers_are_read_and_tokens_said_apart_count_apart() {
    let mut said = headers(&[
        ("anthropic-ratelimit-requests-limit", "50"),
        ("anthropic-ratelimit-requests-remaining", "0"),
        ("anthropic-ratelimit-requests-reset", "2026-03-01T12:00:07Z"),
        ("anthropic-ratelimit-tokens-limit", "100000"),
        ("anthropic-ratelimit-tokens-remaining", "12000"),
        ("anthropic-ratelimit-tokens-reset", "2026-03-01T13:00:30.5+01:00"),
    ]);
    let together = AccountRoom::read(&said, now());
    assert_eq!(together.requests, left(50, 0, 7_000));
    assert_eq!(together.total_tokens, left(100_000, 12_000, 30_500));
    said.extend(headers(&[
        ("anthropic-ratelimit-input-tokens-limit", "80000"),
        ("anthropic-ratelimit-input-tokens-remaining", "79000"),
        ("anthropic-ratelimit-input-tokens-reset", "2026-03-01T11:59:00Z"),
        ("anthropic-ratelimit-output-tokens-remaining", "8000"),
    ]));
    let apart = AccountRoom::read(&said, now());
    assert_eq!(apart.total_tokens, None);
    assert_eq!(apart.input_tokens, left(80_000, 79_000, 0));
    let output = Left {
        limit: None,
        remaining: 8_000,
        reset: None,
    };
    assert_eq!(apart.output_tokens, Some(output));
}

#[test]
fn a_limit_whose_rest_is_not_said_is_left_out() {
    let said = headers(&[
        ("x-ratelimit-limit-requests", "500"),
        ("x-ratelimit-reset-requests", "1s"),
        ("x-ratelimit-remaining-tokens", "many"),
    ]);
    assert!(AccountRoom::read(&said, now()).is_silent());
}

#[test]
fn absurd_amounts_are_bounded() {
    for (text, expected) in [
        ("0", Some(0)),
        ("-3", Some(0)),
        ("12.9", Some(12)),
        ("1e30", Some(u64::MAX)),
        ("99999999999999999999999", Some(u64::MAX)),
        ("NaN", None),
        ("", None),
        ("1 000", None),
    ] {
        let said = headers(&[("x-ratelimit-remaining-requests", text)]);
        let remaining = AccountRoom::read(&said, now()).requests.map(|left| left.remaining);
        assert_eq!(remaining, expected, "{text}");
    }
}

#[test]
fn times_are_durations_seconds_or_instants() {
    let millis = Duration::from_millis;
    for (text, expected) in [
        ("20ms", Some(millis(20))),
        ("1s", Some(millis(1_000))),
        ("8.64s", Some(millis(8_640))),
        ("6m0s", Some(millis(360_000))),
        ("1h2m3.5s", Some(millis(3_723_500))),
        ("1d", Some(RESET_MAX)),
        ("7", Some(millis(7_000))),
        ("0.5", Some(millis(500))),
        ("-1", Some(Duration::ZERO)),
        ("inf", Some(RESET_MAX)),
        ("99999999h", Some(RESET_MAX)),
        ("2026-03-01T12:00:01Z", Some(millis(1_000))),
        ("2020-01-01T00:00:00Z", Some(Duration::ZERO)),
        ("9999-01-01T00:00:00Z", Some(RESET_MAX)),
        ("NaN", None),
        ("", None),
        ("s", None),
        ("1x", None),
        ("1.2.3s", None),
        ("soon", None),
        ("1s1s1s1s1s1s1s1s1s1s1s1s1s1s1s1s1s1s1s1s", None),
    ] {
        assert_eq!(time_until(text, now()), expected, "{text}");
    }
}

#[test]
fn a_429_cools_as_asked_else_until_what_is_used_up_is_back() {
    let seconds = Duration::from_secs;
    let mut said = headers(&[
        ("x-ratelimit-remaining-requests", "0"),
        ("x-ratelimit-reset-requests", "20s"),
        ("x-ratelimit-remaining-tokens", "10"),
        ("x-ratelimit-reset-tokens", "50s"),
    ]);
    assert_eq!(cooling(&said, now()), Some(seconds(20)));
    said.insert("x-ratelimit-remaining-tokens", HeaderValue::from_static("0"));
    assert_eq!(cooling(&said, now()), Some(seconds(50)));
    said.insert("x-ratelimit-reset-tokens", HeaderValue::from_static("23h"));
    assert_eq!(cooling(&said, now()), Some(COOLING_BY_RESET_MAX));
    said.insert("retry-after", HeaderValue::from_static("7"));
    assert_eq!(cooling(&said, now()), Some(seconds(7)));
    said.insert("retry-after-ms", HeaderValue::from_static("1500"));
    assert_eq!(cooling(&said, now()), Some(Duration::from_millis(1_500)));
    assert_eq!(cooling(&HeaderMap::new(), now()), None);
}

proptest! {
    #[test]
    fn nothing_a_provider_says_does_harm(values in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 9)) {
        let names = [
            "x-ratelimit-limit-requests",
            "x-ratelimit-remaining-requests",
            "x-ratelimit-reset-requests",
            "x-ratelimit-remaining-tokens",
            "x-ratelimit-reset-tokens",
            "anthropic-ratelimit-input-tokens-remaining",
            "anthropic-ratelimit-input-tokens-reset",
            "retry-after",
            "retry-after-ms",
        ];
        let mut said = HeaderMap::new();
        for (name, value) in names.into_iter().zip(&values) {
            if let Ok(value) = HeaderValue::from_bytes(value) {
                said.insert(name, value);
            }
        }
        let room = AccountRoom::read(&said, now());
        prop_assert!(room.all().all(|left| left.reset.is_none_or(|reset| reset <= RESET_MAX)));
        prop_assert!(cooling(&said, now()).is_none_or(|cooling| cooling <= RESET_MAX));
    }

    #[test]
    fn no_text_is_a_time_beyond_the_bound(text in "[-0-9.a-zµ:TZ+]{0,40}") {
        prop_assert!(time_until(&text, now()).is_none_or(|time| time <= RESET_MAX));
    }

    #[test]
    fn durations_are_read_as_they_are_written(hours in 0..24_u64, minutes in 0..60_u64, ms in 0..60_000_u64) {
        let text = format!("{hours}h{minutes}m{}s", ms as f64 / 1_000.0);
        let read = time_until(&text, now()).expect("a time").as_millis() as i64;
        let meant = ((hours * 60 + minutes) * 60_000 + ms) as i64;
        prop_assert!((read - meant).abs() <= 1, "{} is read as {} ms", text, read);
    }
}
