use proptest::prelude::*;

use super::*;

/// 600 tokens a minute, one every 100 ms; 50 at once.
fn bucket() -> Bucket {
    Bucket::full(60, 600, 50, 0)
}

#[test]
fn a_request_larger_than_the_burst_passes_a_full_bucket_and_is_paid_back() {
    let mut bucket = bucket();
    assert!(bucket.has(300));
    bucket.take(300);
    assert!(bucket.is_in_debt());
    assert_eq!(bucket.wait_ms(1), Some(25_100));
    bucket.refill(600, 50, 25_099);
    assert!(!bucket.has(1));
    bucket.refill(600, 50, 25_100);
    assert!(bucket.has(1));
    assert!(!bucket.has(2));
}

#[test]
fn what_comes_back_fills_it_no_further_than_full() {
    let mut bucket = bucket();
    bucket.take(50);
    bucket.give_back(500);
    assert_eq!(bucket.full_in_ms(), Some(0));
    assert!(bucket.has(u64::MAX));
    bucket.take(51);
    assert!(bucket.is_in_debt());
}

#[test]
fn a_limit_in_rehearsal_owes_at_most_one_window() {
    let mut bucket = bucket();
    for _ in 0..100 {
        bucket.take(500);
        bucket.forgive_beyond_window();
    }
    assert_eq!(bucket.wait_ms(1), Some(60_100));
}

#[test]
fn a_changed_value_keeps_the_level_and_refills_at_the_new_speed() {
    let mut bucket = bucket();
    bucket.take(50);
    bucket.refill(1_200, 100, 0);
    assert!(!bucket.has(1));
    bucket.refill(1_200, 100, 1_000);
    assert!(bucket.has(20) && !bucket.has(21));
    bucket.refill(600, 10, 1_000);
    assert!(bucket.is_full_by(1_000), "a smaller bucket spills over");
}

proptest! {
    #[test]
    fn the_wait_is_exact(takes in prop::collection::vec((0_u64..5_000, 0_u64..200), 0..20), need in 1_u64..100) {
        let mut bucket = bucket();
        let mut now_ms = 0;
        for (step_ms, tokens) in takes {
            now_ms += step_ms;
            bucket.refill(600, 50, now_ms);
            bucket.take(tokens);
        }
        let wait_ms = bucket.wait_ms(need).unwrap();
        let has_after = |wait_ms: u64| {
            let mut later = bucket.clone();
            later.refill(600, 50, now_ms + wait_ms);
            later.has(need)
        };
        prop_assert!(has_after(wait_ms));
        prop_assert!(wait_ms == 0 || !has_after(wait_ms - 1));
    }
}
