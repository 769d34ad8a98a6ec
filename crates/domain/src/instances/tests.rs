//! A status outlives the version that wrote it.

use serde_json::json;

use super::InstanceStatus;

#[test]
fn what_another_version_says_in_words_of_its_own_is_left_out_and_the_rest_stays() {
    let written = json!({
        "in_flight": 3,
        "degraded": ["counters: written as a text", { "kind": "of_the_future", "text": "?" }],
        "breakers": [{ "state": "of_the_future" }],
        "queue": { "depth": 2, "reasons": [{ "code": "of_the_future" }] },
        "complete_until": "2026-11-30T12:00:00Z",
    });
    let status: InstanceStatus = serde_json::from_value(written).expect("a status");
    assert_eq!((status.in_flight, status.queue.depth), (3, 2));
    assert!(status.complete_until.is_some());
    assert!(status.degraded.is_empty() && status.breakers.is_empty() && status.queue.reasons.is_empty());
}
