//! Durations are written as OpenAI writes them.

use super::duration;

#[test]
fn durations_read_as_callers_know_them() {
    assert_eq!(duration(0), "0ms");
    assert_eq!(duration(120), "120ms");
    assert_eq!(duration(1_001), "2s");
    assert_eq!(duration(60_000), "1m0s");
    assert_eq!(duration(363_500), "6m4s");
}
