//! A cost is never below its exact value, never a nano-unit too much, and never above the ceiling.

use chrono::DateTime;
use proptest::prelude::*;
use uuid::Uuid;

use super::{Price, PriceTier, Rates};
use crate::ids::PriceId;
use crate::money::Nanos;
use crate::usage::TokenUsage;

fn price(rates: Rates, tiers: Vec<PriceTier>) -> Price {
    Price {
        id: PriceId(Uuid::nil()),
        model: "m".into(),
        valid_from: DateTime::UNIX_EPOCH,
        valid_until: None,
        rates,
        tiers,
    }
}

#[test]
fn each_class_is_priced_once_at_its_own_rate() {
    let rates = Rates {
        input_nanos_per_mtok: 3_000_000_000,
        cache_read_nanos_per_mtok: 300_000_000,
        cache_write_5m_nanos_per_mtok: 3_750_000_000,
        cache_write_1h_nanos_per_mtok: 6_000_000_000,
        output_nanos_per_mtok: 15_000_000_000,
    };
    let usage = TokenUsage {
        input_fresh_tokens: 1_000,
        cache_read_tokens: 10_000,
        cache_write_5m_tokens: 100,
        cache_write_1h_tokens: 10,
        output_tokens: 500,
        reasoning_tokens: 400,
    };
    assert_eq!(
        rates.cost(&usage),
        Nanos(3_000_000 + 3_000_000 + 375_000 + 60_000 + 7_500_000)
    );
}

#[test]
fn a_fraction_of_a_nano_is_rounded_up_once() {
    let rates = Rates::flat(1, 1);
    let usage = TokenUsage {
        input_fresh_tokens: 1,
        output_tokens: 1,
        ..TokenUsage::default()
    };
    assert_eq!(rates.cost(&usage), Nanos(1));
}

#[test]
fn a_tier_applies_above_its_threshold_only() {
    let tier = PriceTier {
        above_input_tokens: 200_000,
        rates: Rates::flat(2_000_000, 2_000_000),
    };
    let price = price(Rates::flat(1_000_000, 1_000_000), vec![tier]);
    let usage = |tokens| TokenUsage {
        input_fresh_tokens: tokens,
        ..TokenUsage::default()
    };
    assert_eq!(price.cost(&usage(200_000)), Nanos(200_000));
    assert_eq!(price.cost(&usage(200_001)), Nanos(400_002));
}

#[test]
fn huge_requests_saturate_instead_of_wrapping() {
    let rates = Rates::flat(i64::MAX, i64::MAX);
    let usage = TokenUsage {
        input_fresh_tokens: u64::MAX,
        output_tokens: u64::MAX,
        ..TokenUsage::default()
    };
    assert_eq!(rates.cost(&usage), Nanos(i64::MAX));
}

proptest! {
    #[test]
    fn a_cost_never_passes_the_ceiling_of_the_same_tokens(
        rates in prop::array::uniform5(0_i64..100_000_000_000),
        tier_rates in prop::array::uniform5(0_i64..100_000_000_000),
        above in 0_u64..50_000,
        counts in prop::array::uniform5(0_u64..20_000),
    ) {
        let make = |r: [i64; 5]| Rates {
            input_nanos_per_mtok: r[0],
            cache_read_nanos_per_mtok: r[1],
            cache_write_5m_nanos_per_mtok: r[2],
            cache_write_1h_nanos_per_mtok: r[3],
            output_nanos_per_mtok: r[4],
        };
        let price = price(make(rates), vec![PriceTier { above_input_tokens: above, rates: make(tier_rates) }]);
        let usage = TokenUsage {
            input_fresh_tokens: counts[0],
            cache_read_tokens: counts[1],
            cache_write_5m_tokens: counts[2],
            cache_write_1h_tokens: counts[3],
            output_tokens: counts[4],
            reasoning_tokens: 0,
        };
        prop_assert!(price.cost(&usage) <= price.ceiling(usage.input_tokens(), usage.output_tokens));
    }
}
