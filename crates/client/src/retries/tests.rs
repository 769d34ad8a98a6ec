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
fn to_be_told_not_to_wait_is_to_be_told_nothing() {
    let retries = Retries::default();
    assert_eq!(retries.wait(1, Some(Duration::ZERO), 0.5), retries.wait(1, None, 0.5));
}

proptest! {
    #[test]
    fn jitter_is_30_percent_either_way(
        retry in 0_u32..80,
        first_ms in 0_u64..100_000,
        longest_ms in 0_u64..100_000,
        random in 0.0_f64..=1.0,
    ) {
        let retries = Retries { retries_max: u32::MAX, first_ms, longest_ms };
        let at = |random| retries.wait(retry, None, random).as_secs_f64();
        let (least, middle, most) = (at(0.0), at(0.5), at(1.0));
        prop_assert!((least - 0.7 * middle).abs() < 1e-6 && (most - 1.3 * middle).abs() < 1e-6);
        prop_assert!((least..=most).contains(&at(random)));
        prop_assert!(middle <= longest_ms as f64 / 1_000.0 + 1e-6);
    }

    #[test]
    fn what_was_told_is_never_shortened_and_hardly_lengthened(
        told_ms in 1_u64..=u64::MAX,
        retry in 0_u32..80,
        random in 0.0_f64..=1.0,
    ) {
        let told = Duration::from_millis(told_ms);
        let wait = Retries::default().wait(retry, Some(told), random);
        let spread = told.min(Duration::from_secs(1)).mul_f64(0.3);
        prop_assert!(told <= wait && wait <= told + spread + Duration::from_nanos(1));
    }
}
