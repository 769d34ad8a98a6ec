use super::*;

fn days(amounts: &[i64]) -> Vec<(NaiveDate, Nanos)> {
    let first = NaiveDate::from_ymd_opt(2026, 11, 1).unwrap();
    first
        .iter_days()
        .zip(amounts)
        .map(|(day, units)| (day, Nanos::from_units(*units)))
        .collect()
}

#[test]
fn every_colour_is_a_custom_property() {
    let svg = daily_bars(&days(&[3, 0, 12]), "title", "Spend & more").unwrap();
    assert!(svg.contains("var(--chart-bar)"));
    assert!(svg.contains("var(--chart-text)"));
    assert!(!svg.contains('#'), "a fixed colour is left: {svg}");
    assert!(
        !svg.contains("style="),
        "inline styles are refused by the content security policy: {svg}"
    );
}

#[test]
fn it_scales_and_says_what_it_is() {
    let svg = daily_bars(&days(&[1]), "spend-title", "Spend & more").unwrap();
    assert!(svg.contains("aria-labelledby=\"spend-title\""));
    assert!(svg.contains("<title>Spend &amp; more</title>"));
    assert!(svg.contains("viewBox=\"0 0 760 240\""));
    assert!(!svg.contains("width=\"760\" height=\"240\" viewBox"));
}

#[test]
fn days_without_spend_and_no_days_at_all_are_drawn() {
    assert!(daily_bars(&days(&[0, 0]), "title", "Spend & more").is_ok());
    assert!(daily_bars(&[], "title", "Spend & more").is_ok());
}

#[test]
fn the_scale_ends_on_a_round_figure() {
    assert_eq!(ceiling(0.0), 1.0);
    assert_eq!(ceiling(37.0), 40.0);
    assert_eq!(ceiling(61.0), 80.0);
    assert_eq!(ceiling(0.013), 0.02);
}
