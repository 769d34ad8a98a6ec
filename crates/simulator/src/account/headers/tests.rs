//! Durations in OpenAI's headers.

use std::time::Duration;

use super::go_duration;

#[test]
fn durations_are_written_as_openai_does() {
    for (millis, text) in [
        (0, "0ms"),
        (120, "120ms"),
        (1_000, "1s"),
        (17_300, "17.3s"),
        (59_021, "59.021s"),
        (60_000, "1m0s"),
        (61_500, "1m1.5s"),
    ] {
        assert_eq!(go_duration(Duration::from_millis(millis)), text);
    }
}
