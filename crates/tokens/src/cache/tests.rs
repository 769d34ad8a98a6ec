//! Counts are remembered by text and encoding, and their number is bounded.

use domain::policy::Encoding;

use super::CountCache;

#[test]
fn a_text_is_counted_once_for_each_encoding() {
    let cache = CountCache::new(64);
    assert_eq!(cache.get_or_count(Encoding::O200kBase, "text", || 7), 7);
    assert_eq!(
        cache.get_or_count(Encoding::O200kBase, "text", || panic!("it is known")),
        7
    );
    assert_eq!(cache.get_or_count(Encoding::Cl100kBase, "text", || 8), 8);
    assert_eq!(cache.get_or_count(Encoding::O200kBase, "another text", || 9), 9);
}

#[test]
fn the_number_of_counts_is_bounded_and_what_is_used_stays() {
    let cache = CountCache::new(64);
    cache.get_or_count(Encoding::O200kBase, "used", || 1);
    for number in 0..10_000_u64 {
        cache.get_or_count(Encoding::O200kBase, &number.to_string(), || number);
        assert_eq!(
            cache.get_or_count(Encoding::O200kBase, "used", || panic!("it stays")),
            1
        );
    }
    assert!(cache.len() <= 64, "{}", cache.len());
}
