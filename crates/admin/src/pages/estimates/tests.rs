use super::*;

#[test]
fn ratios_have_two_places_and_nothing_used_has_none() {
    let text = |expected, used| ratio_text(Estimated { expected, used });
    assert_eq!(text(105, 100), "1.05");
    assert_eq!(text(50, 100), "0.50");
    assert_eq!(text(123_456_700, 100), "1,234,567.00");
    assert_eq!(text(100, 0), "–");
}
