//! Waits double, stay within their jitter and bound, and obey what was told.

use std::time::Duration;

use proptest::prelude::*;

use super::Retries;

#[test]
fn back_offs_double_up_to_the_longest() {
    let retries = Retries {
        retries_max: 9,
        first_ms: 100,
        longest_ms: 700,
    };
    let waits: Vec<u128> = (0..5).map(|retry| retries.wait(retry, None, 0.5).as_millis()).collect();
    assert_eq!(waits, [100, 200, 400, 700, 700]);
    assert_eq!(retries.wait(200, None, 0.5).as_millis(), 700);
}

#[test]
fn what_was_told_is_obeyed() {
    let told = Some(Duration::from_secs(7));
    assert_eq!(Retries::default().wait(0, told, 0.0), Duration::from_secs(7));
}

proptest! {
    #[test]
    fn jitter_is_30_percent_at_most(retry in 0_u32..20, random in 0.0_f64..=1.0) {
        let retries = Retries::default();
        let middle = retries.wait(retry, None, 0.5).as_secs_f64();
        let wait = retries.wait(retry, None, random).as_secs_f64();
        prop_assert!(wait >= 0.699 * middle && wait <= 1.301 * middle);
    }
}
