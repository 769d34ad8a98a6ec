//! What is learned follows the last requests, needs a few of them, and stays bounded.

use chrono::DateTime;
use domain::ids::KeyId;
use proptest::prelude::*;

use super::{Book, LEARNED_AFTER, OutputBook, Ratio, RatioBook};

fn key(number: u8) -> KeyId {
    KeyId::new(DateTime::UNIX_EPOCH, [number; 10])
}

#[test]
fn a_ratio_counts_after_enough_samples_and_is_about_the_90th_percentile() {
    let book = RatioBook::new();
    for _ in 1..LEARNED_AFTER {
        book.observe("m", 100, 150);
    }
    assert_eq!(book.ratio("m"), Ratio::ONE);
    book.observe("m", 100, 150);
    assert_eq!(book.ratio("m").times(100), 150);
    // One outlier in ten is above the percentile; a model of its own stays untouched.
    for round in 0..100 {
        book.observe("m", 100, if round % 16 == 0 { 400 } else { 120 });
    }
    assert_eq!(book.ratio("m").times(100), 120);
    assert_eq!(book.ratio("other"), Ratio::ONE);
}

#[test]
fn a_report_of_nothing_is_no_news() {
    let book = RatioBook::new();
    for _ in 0..LEARNED_AFTER {
        book.observe("m", 100, 0);
    }
    assert_eq!(book.ratio("m"), Ratio::ONE);
}

#[test]
fn expected_output_is_the_key_s_own_then_the_model_s_then_the_default() {
    let book = OutputBook::new();
    assert_eq!(book.expected(key(1), "m", 1_000, 4_000), 1_000);
    for _ in 0..LEARNED_AFTER {
        book.observe(key(1), "m", 200);
    }
    assert_eq!(book.expected(key(1), "m", 1_000, 4_000), 200);
    assert_eq!(book.expected(key(2), "m", 1_000, 4_000), 200);
    for _ in 0..LEARNED_AFTER {
        book.observe(key(2), "m", 3_000);
    }
    assert_eq!(book.expected(key(1), "m", 1_000, 4_000), 200);
    assert_eq!(book.expected(key(2), "m", 1_000, 4_000), 3_000);
    assert_eq!(book.expected(key(2), "m", 1_000, 50), 50, "never above the cap");
    assert_eq!(book.expected(key(2), "n", 1_000, 50), 50, "neither is the default");
}

#[test]
fn who_was_not_seen_for_longest_is_forgotten_first() {
    let book = Book::new(16);
    for name in 0..1_000_u32 {
        for _ in 0..LEARNED_AFTER {
            book.observe(name, name);
            book.observe("regular", 7);
        }
    }
    assert!(book.pages.read().by_name.len() <= 16);
    assert_eq!(book.find("regular"), Some(7));
    assert_eq!(book.find(999_u32), Some(999));
    assert_eq!(book.find(0_u32), None);
}

proptest! {
    #[test]
    fn a_ratio_is_bounded_whatever_is_reported(reports in prop::collection::vec(any::<(u64, u64)>(), 8..40)) {
        let book = RatioBook::new();
        for (guess, actual) in reports {
            book.observe("m", guess, actual);
        }
        prop_assert!((250..=4_000).contains(&book.ratio("m").times(1_000)));
    }
}
