use super::*;

#[test]
fn blank_cache_rates_follow_input_and_blank_rates_are_not_zero() {
    let mut fields = Fields::default();
    let text = RatesText {
        input: "2.50".to_owned(),
        output: "0".to_owned(),
        cache_read: "0.25".to_owned(),
        ..RatesText::default()
    };
    let rates = text.parse(&mut fields);
    assert!(fields.check().is_ok());
    assert_eq!(rates.input_nanos_per_mtok, 2_500_000_000);
    assert_eq!(rates.cache_read_nanos_per_mtok, 250_000_000);
    assert_eq!(rates.cache_write_1h_nanos_per_mtok, 2_500_000_000);
    assert_eq!(rates.output_nanos_per_mtok, 0);

    let mut fields = Fields::default();
    RatesText::default().parse(&mut fields);
    let error = fields.check().unwrap_err();
    let named: Vec<_> = error.fields().iter().map(|error| error.field.as_ref()).collect();
    assert_eq!(named, ["input", "output"]);
}

#[test]
fn a_price_begins_in_the_future_or_now() {
    let now: DateTime<Utc> = "2026-11-15T12:00:00Z".parse().unwrap();
    let draft = |valid_from: Option<&str>| PriceDraft {
        valid_from: valid_from.map(|text| text.parse().unwrap()),
        rates: Rates::flat(1, 1),
        tiers: Vec::new(),
    };
    assert!(check(&draft(None), false, now).is_ok());
    assert!(check(&draft(Some("2026-12-01T00:00:00Z")), false, now).is_ok());
    assert!(check(&draft(Some("2026-11-15T11:59:00Z")), false, now).is_ok());
    let past = draft(Some("2026-11-01T00:00:00Z"));
    assert_eq!(check(&past, false, now).unwrap_err().fields()[0].field, "valid_from");
    assert!(check(&past, true, now).is_ok());
}

#[test]
fn tiers_begin_at_different_numbers_of_tokens() {
    let now: DateTime<Utc> = "2026-11-15T12:00:00Z".parse().unwrap();
    let tier = |above_input_tokens| PriceTier {
        above_input_tokens,
        rates: Rates::flat(1, 1),
    };
    let draft = |tiers| PriceDraft {
        valid_from: None,
        rates: Rates::flat(1, 1),
        tiers,
    };
    assert!(check(&draft(vec![tier(200_000), tier(100_000)]), false, now).is_ok());
    assert!(check(&draft(vec![tier(5), tier(5)]), false, now).is_err());
    assert!(check(&draft(vec![tier(0)]), false, now).is_err());
    let mut negative = tier(5);
    negative.rates.output_nanos_per_mtok = -1;
    assert!(check(&draft(vec![negative]), false, now).is_err());
}
