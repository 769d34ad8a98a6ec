//! What is kept is compared, and a difference says which row it is and what differs.

use chrono::{DateTime, Utc};
use domain::periods::Span;
use serde_json::json;

use super::{columns, kept};

fn at(text: &str) -> DateTime<Utc> {
    text.parse().expect("an instant")
}

#[test]
fn only_whole_quarters_of_an_hour_with_all_their_entries_are_compared() {
    let day = Span {
        start: at("2026-11-01T00:00:00Z"),
        end: at("2026-11-02T00:00:00Z"),
    };
    let start = |kept_from: &str| kept(day, Some(at(kept_from))).map(|span| span.start);
    assert_eq!(kept(day, None), Some(day));
    assert_eq!(start("2026-10-01T00:00:00Z"), Some(day.start));
    assert_eq!(start("2026-11-01T12:00:00Z"), Some(at("2026-11-01T12:00:00Z")));
    assert_eq!(start("2026-11-01T12:00:01Z"), Some(at("2026-11-01T12:15:00Z")));
    assert_eq!(start("2026-11-01T23:50:00Z"), None);
    assert_eq!(start("2026-12-01T00:00:00Z"), None);
}

#[test]
fn a_difference_names_its_row_and_the_columns_that_differ() {
    let row = |cost: i64| {
        json!({
            "bucket_start": "2026-11-01T00:00:00+00:00",
            "tenant_id": "t",
            "user_id": "",
            "key_id": "k",
            "model": "m",
            "upstream_id": super::NIL,
            "requests": 2,
            "failed_requests": 0,
            "cost_nanos": cost,
        })
    };
    assert_eq!(
        columns(Some(&row(1)), Some(&row(2))),
        " key_id=k model=m: cost_nanos stored 1, from entries 2"
    );
    assert_eq!(
        columns(None, Some(&row(2))),
        " key_id=k model=m: missing, from entries cost_nanos 2, requests 2"
    );
    assert_eq!(
        columns(Some(&row(1)), None),
        " key_id=k model=m: without entries, stored cost_nanos 1, requests 2"
    );
}
