use chrono::DateTime;
use domain::policy::Settings;
use domain::prices::{Rates, Unpriced};
use uuid::Uuid;

use super::*;

fn format() -> Format {
    Format::new(&Settings {
        time_zone: chrono_tz::Europe::Zurich,
        currency: "CHF".to_owned(),
        unpriced: Unpriced::Refuse,
        rehearsal_percent: None,
    })
}

fn price() -> Price {
    let tier = |above_input_tokens, factor: i64| PriceTier {
        above_input_tokens,
        rates: Rates::flat(factor * 2_500_000_000, factor * 10_000_000_001),
    };
    Price {
        id: PriceId(Uuid::nil()),
        model: "gpt".to_owned(),
        valid_from: DateTime::UNIX_EPOCH,
        valid_until: None,
        rates: Rates {
            cache_read_nanos_per_mtok: 0,
            ..Rates::flat(2_500_000_000, 10_000_000_001)
        },
        tiers: vec![tier(200_000, 2), tier(500_000, 4)],
    }
}

#[test]
fn a_copied_price_is_the_price_again() {
    let draft = PriceForm::of(&price()).draft(&format()).unwrap();
    assert_eq!(draft.valid_from, None);
    assert_eq!((draft.rates, draft.tiers), (price().rates, price().tiers));
}

#[test]
fn empty_rows_are_no_tiers_and_what_is_wrong_stands_beside_its_row() {
    let mut form = PriceForm::of(&price());
    form.tier_above.insert(0, String::new());
    for column in [
        &mut form.tier_input,
        &mut form.tier_cache_read,
        &mut form.tier_cache_write_5m,
        &mut form.tier_cache_write_1h,
        &mut form.tier_output,
    ] {
        column.insert(0, String::new());
    }
    assert_eq!(form.draft(&format()).unwrap().tiers, price().tiers);
    form.tier_above[1] = String::new();
    form.tier_output[2] = "much".to_owned();
    let refused = form.draft(&format()).unwrap_err();
    let fields: Vec<_> = refused.fields().iter().map(|error| error.field.as_ref()).collect();
    assert_eq!(fields, ["tiers.0.above", "tiers.1.output"]);
}
