use domain::ids::PriceId;
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::models;
use crate::prices;

fn rate(text: &str) -> ExchangeRate {
    text.parse().unwrap()
}

#[test]
fn the_bundled_catalogue_can_be_loaded_as_it_is() {
    let catalogue = Catalogue::bundled().unwrap();
    let now = catalogue.as_of.and_hms_opt(0, 0, 0).unwrap().and_utc();
    assert!(catalogue.models.len() >= 25);
    let mut names = HashSet::new();
    for model in &catalogue.models {
        assert!(names.insert(&model.name), "{} is there twice", model.name);
        models::checked(&draft_of(model, &CatalogueLoad::default()), None, now).unwrap();
        prices::check(&price_of(model, ExchangeRate::ONE), false, now).unwrap();
        let retires_later = model.retires_on.is_none_or(|day| day > catalogue.as_of);
        assert!(retires_later, "{} was gone when the catalogue was made", model.name);
    }
}

#[test]
fn the_bundled_prices_are_plausible() {
    for model in Catalogue::bundled().unwrap().models {
        let name = &model.name;
        let all = std::iter::once(&model.rates).chain(model.tiers.iter().map(|tier| &tier.rates));
        for rates in all {
            assert!(rates.input_nanos_per_mtok > 0, "{name}");
            assert!(rates.cache_read_nanos_per_mtok <= rates.input_nanos_per_mtok, "{name}");
            assert!(
                rates.cache_write_5m_nanos_per_mtok >= rates.input_nanos_per_mtok,
                "{name}"
            );
            assert!(
                rates.cache_write_1h_nanos_per_mtok >= rates.cache_write_5m_nanos_per_mtok,
                "{name}"
            );
            let is_embedding = name.starts_with("text-embedding");
            assert_eq!(rates.output_nanos_per_mtok == 0, is_embedding, "{name}");
            assert!(
                is_embedding || rates.output_nanos_per_mtok > rates.input_nanos_per_mtok,
                "{name}"
            );
        }
        for tier in &model.tiers {
            assert!(tier.above_input_tokens < model.context_tokens, "{name}");
            assert!(
                tier.rates.input_nanos_per_mtok > model.rates.input_nanos_per_mtok,
                "{name}"
            );
        }
        match model.dialect {
            Dialect::Openai => assert_ne!(model.encoding, Encoding::Ratio, "{name}"),
            Dialect::Anthropic => assert_eq!(model.encoding, Encoding::Ratio, "{name}"),
        }
    }
}

#[test]
fn an_exchange_rate_is_exact_and_rounds_up() {
    assert_eq!(rate("1").convert(2_500_000_000), 2_500_000_000);
    assert_eq!(rate("0.92").convert(2_500_000_000), 2_300_000_000);
    assert_eq!(rate("0.333333333").convert(1), 1);
    assert_eq!(rate("0.333333333").convert(3), 1);
    assert_eq!(rate("0.333333333").convert(4), 2);
    assert_eq!(rate("155.5").convert(0), 0);
    assert_eq!(rate("1000000").convert(i64::MAX), i64::MAX);
}

#[test]
fn what_is_no_exchange_rate_is_refused() {
    for (text, error) in [
        ("", ParseExchangeRateError::NotANumber),
        ("1,5", ParseExchangeRateError::NotANumber),
        ("0", ParseExchangeRateError::OutOfRange),
        ("-1", ParseExchangeRateError::OutOfRange),
        ("1000000.1", ParseExchangeRateError::OutOfRange),
        ("1.0123456789", ParseExchangeRateError::TooPrecise),
    ] {
        assert_eq!(text.parse::<ExchangeRate>(), Err(error), "{text}");
    }
}

#[test]
fn dollars_need_no_exchange_rate_and_take_none() {
    assert_eq!(exchange_for("USD", Some(rate("2"))), Some(ExchangeRate::ONE));
    assert_eq!(exchange_for("EUR", None), None);
    assert_eq!(exchange_for("EUR", Some(rate("0.92"))), Some(rate("0.92")));
}

#[test]
fn a_price_is_the_same_in_every_order_of_its_tiers() {
    let tier = |above_input_tokens| PriceTier {
        above_input_tokens,
        rates: Rates::flat(2, 2),
    };
    let draft = |tiers| PriceDraft {
        valid_from: None,
        rates: Rates::flat(1, 1),
        tiers,
    };
    let stored = Price {
        id: PriceId(Uuid::nil()),
        model: "gpt".to_owned(),
        valid_from: DateTime::UNIX_EPOCH,
        valid_until: None,
        rates: Rates::flat(1, 1),
        tiers: vec![tier(10), tier(20)],
    };
    assert!(is_same(&stored, &draft(vec![tier(20), tier(10)])));
    assert!(!is_same(&stored, &draft(vec![tier(10)])));
    assert!(!is_same(&stored, &draft(vec![tier(10), tier(30)])));
}

#[test]
fn only_models_of_the_catalogue_can_be_chosen() {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let chosen_names = |asked: &[&str]| {
        chosen(&names(asked)).map(|models| models.into_iter().map(|model| model.name).collect::<Vec<_>>())
    };
    assert_eq!(
        chosen_names(&["gpt-4o-mini", "gpt-4o", "gpt-4o"]).unwrap(),
        ["gpt-4o", "gpt-4o-mini"]
    );
    for refused in [&[][..], &["gpt-4o", "made-up"][..]] {
        assert_eq!(chosen_names(refused).unwrap_err().fields()[0].field, "models");
    }
}

proptest! {
    /// In exact arithmetic: never below the price, and by less than a nano-unit above it.
    #[test]
    fn a_conversion_is_the_smallest_that_is_not_too_little(price in 0..=10_i64.pow(15), rate in 1..=10_i64.pow(15)) {
        let converted = i128::from(ExchangeRate(Nanos(rate)).convert(price));
        let exact = i128::from(price) * i128::from(rate);
        let unit = i128::from(NANOS_PER_UNIT);
        prop_assert!(converted * unit >= exact || converted == i128::from(i64::MAX));
        prop_assert!((converted - 1) * unit < exact || converted == 0);
    }
}
