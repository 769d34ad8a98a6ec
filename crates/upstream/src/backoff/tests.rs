//! Waits grow, differ, and end.

use proptest::prelude::*;

use super::{BACKOFF_FIRST_MS, BACKOFF_MAX_MS, backoff_ms};

#[test]
fn waits_double_until_they_are_long_enough() {
    let longest: Vec<u64> = (0..6).map(|retry| backoff_ms(retry, 1.0)).collect();
    assert_eq!(longest, [200, 400, 800, 1_600, 2_000, 2_000]);
    assert_eq!(backoff_ms(0, 0.0), BACKOFF_FIRST_MS / 2);
}

proptest! {
    #[test]
    fn every_wait_is_bounded(retry: u32, random in prop::num::f64::ANY) {
        let wait = backoff_ms(retry, random);
        prop_assert!((BACKOFF_FIRST_MS / 2..=BACKOFF_MAX_MS).contains(&wait), "{wait}");
    }
}
