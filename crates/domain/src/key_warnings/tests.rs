//! An end is told of early enough to do something, and not so early that it is forgotten.

use chrono::{DateTime, TimeDelta, Utc};

use super::{EndingKey, KeyEnding};

fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_800_000_000 + seconds, 0).expect("in range")
}

#[test]
fn a_key_is_told_of_a_week_before_and_an_overlap_a_quarter_of_it_before() {
    let hour = 3_600;
    let overlap = KeyEnding::OverlapEnds { began_at: at(0) };
    assert_eq!(overlap.told_from(at(hour)), at(hour - 900));
    assert_eq!(overlap.told_from(at(24 * hour)), at(18 * hour));
    assert_eq!(overlap.told_from(at(30 * 24 * hour)), at(29 * 24 * hour));
    assert_eq!(overlap.told_from(at(-5)), at(-5), "one that ended before it began");
    assert_eq!(KeyEnding::KeyExpires.told_from(at(0)), at(0) - TimeDelta::days(7));
}

#[test]
fn the_event_names_the_key_without_its_secret() {
    let key = EndingKey {
        ending: KeyEnding::KeyExpires,
        ends_at: at(0),
        key_id: uuid::Uuid::nil().into(),
        public_id: "abcdefghijkl".to_owned(),
        name: "search".to_owned(),
        tenant_id: uuid::Uuid::nil().into(),
        tenant_name: "Acme".to_owned(),
        owner_email: None,
        last_used_at: None,
    };
    let body: serde_json::Value = serde_json::from_str(&key.body(uuid::Uuid::nil(), at(-60))).expect("JSON");
    assert_eq!(body["event"], "key.expires");
    assert_eq!(body["key"]["key"], "sk-tg-abcdefghijkl-…");
    assert_eq!(body["key"]["ends_at"], "2027-01-15T08:00:00Z");
}
