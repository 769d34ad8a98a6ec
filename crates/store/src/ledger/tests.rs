use serde_json::json;

use super::*;

#[test]
fn a_nul_character_does_not_keep_an_entry_out() {
    let entry = json!({"user_id": "a\u{0}b", "tags": {"k\u{0}": ["x\u{0}"]}, "literal": "\\u0000"});
    let text = json_array(&[&entry]).unwrap().unwrap();
    let back: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        back,
        json!([{"user_id": "a\u{fffd}b", "tags": {"k\u{fffd}": ["x\u{fffd}"]}, "literal": "\\u0000"}])
    );
}

#[test]
fn partitions_cover_an_entry_from_before_midnight_and_the_months_ahead() {
    let now = "2026-12-01T00:00:05Z".parse().unwrap();
    let months: Vec<String> = partition_months(now)
        .map(|day| day.format("%Y-%m").to_string())
        .collect();
    assert_eq!(months, ["2026-11", "2026-12", "2027-01", "2027-02"]);
}
