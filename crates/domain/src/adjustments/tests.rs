//! Whatever is corrected how often: a request is its settlement and the sum of its differences, and never below zero.

use chrono::DateTime;
use proptest::prelude::*;
use uuid::Uuid;

use super::{ADJUSTED_COST_MAX, ADJUSTED_TOKENS_MAX, Correction, CorrectionError, Figures, correct};
use crate::estimate::{Amounts, Estimate};
use crate::ids::{KeyId, PriceId, RequestId, TenantId, UpstreamId};
use crate::ledger::{Attempt, HoldRecord, Identity, Settlement};
use crate::money::Nanos;
use crate::policy::Dialect;
use crate::prices::{Price, PriceTier, Rates};
use crate::priority::Priority;
use crate::usage::TokenUsage;

/// A request that was abandoned, charged at 1,000 input and 500 output tokens and at a cost of 2,000.
fn abandoned() -> Settlement {
    let expected = Amounts {
        input_tokens: 1_000,
        output_tokens: 500,
        cost: Nanos(2_000),
    };
    let hold = HoldRecord {
        identity: Identity {
            id: RequestId(Uuid::from_u128(1)),
            tenant_id: TenantId(Uuid::from_u128(2)),
            user_id: None,
            key_id: KeyId(Uuid::from_u128(3)),
            model: Some("m".into()),
            dialect: Dialect::Openai,
            endpoint: "chat/completions".into(),
            priority: Priority::Default,
            is_streamed: false,
            tags: Default::default(),
            instance: "i".into(),
            user_agent: None,
            job_id: None,
        },
        admitted_at: DateTime::UNIX_EPOCH,
        upstream_id: None,
        estimate: Estimate {
            expected,
            ceiling: expected,
        },
        price_id: None,
        is_unpriced: false,
        queue_ms: 0,
    };
    Settlement::abandoned(hold, DateTime::UNIX_EPOCH)
}

/// One unit per token of input, two of output; ten and twenty above 2,000 tokens of input.
fn price() -> Price {
    Price {
        id: PriceId(Uuid::nil()),
        model: "m".into(),
        valid_from: DateTime::UNIX_EPOCH,
        valid_until: None,
        rates: Rates::flat(1_000_000, 2_000_000),
        tiers: vec![PriceTier {
            above_input_tokens: 2_000,
            rates: Rates::flat(10_000_000, 20_000_000),
        }],
    }
}

fn figures(input_tokens: i64, output_tokens: i64, cost: i64) -> Figures {
    Figures {
        input_tokens,
        output_tokens,
        cost_nanos: Nanos(cost),
    }
}

fn usage(input: u64, output: u64) -> TokenUsage {
    TokenUsage {
        input_fresh_tokens: input,
        output_tokens: output,
        ..TokenUsage::default()
    }
}

fn at_price(usage: Option<TokenUsage>) -> Correction {
    Correction::AtPrice { usage, price: price() }
}

fn at_cost(usage: Option<TokenUsage>, cost: i64) -> Correction {
    Correction::AtCost {
        usage,
        cost_nanos: Nanos(cost),
    }
}

#[test]
fn right_tokens_are_priced_anew_in_their_tier() {
    let request = abandoned();
    let corrected = correct(&request, Figures::default(), &at_price(Some(usage(300, 20)))).expect("a correction");
    assert_eq!(corrected.before, figures(1_000, 500, 2_000));
    assert_eq!(corrected.after, figures(300, 20, 340));
    assert_eq!(corrected.difference, figures(-700, -480, -1_660));

    let corrected = correct(&request, Figures::default(), &at_price(Some(usage(3_000, 500)))).expect("a correction");
    assert_eq!(corrected.after, figures(3_000, 500, 40_000));

    // Another price for what was settled.
    let corrected = correct(&request, Figures::default(), &at_price(None)).expect_err("it is 1000 + 2 * 500");
    assert_eq!(corrected, CorrectionError::NothingChanges);
}

#[test]
fn a_right_cost_leaves_the_tokens_and_what_was_adjusted_before_counts() {
    let request = abandoned();
    let adjusted = figures(-400, 0, -500);
    let corrected = correct(&request, adjusted, &at_cost(None, 0)).expect("a correction");
    assert_eq!(corrected.before, figures(600, 500, 1_500));
    assert_eq!(corrected.difference, figures(0, 0, -1_500));
    assert_eq!(corrected.after, figures(600, 500, 0));

    let corrected = correct(&request, adjusted, &at_cost(Some(usage(0, 0)), 0)).expect("a correction");
    assert_eq!(corrected.difference, figures(-600, -500, -1_500));

    let unknown = correct(&request, adjusted, &at_price(None));
    assert_eq!(unknown, Err(CorrectionError::ClassesUnknown));
}

#[test]
fn a_difference_may_empty_a_request_and_no_more() {
    let request = abandoned();
    let adjusted = figures(-1_000, -500, -1_999);
    let by = |difference| correct(&request, adjusted, &Correction::By(difference));
    assert_eq!(by(figures(0, 0, -1)).map(|done| done.after), Ok(Figures::default()));
    for below in [figures(0, 0, -2), figures(-1, 0, 0), figures(0, -1, 5)] {
        assert_eq!(by(below), Err(CorrectionError::BelowZero), "{below:?}");
    }
    assert_eq!(by(Figures::default()), Err(CorrectionError::NothingChanges));
    for large in [
        figures(ADJUSTED_TOKENS_MAX + 1, 0, 0),
        figures(0, ADJUSTED_TOKENS_MAX + 1, 0),
        figures(0, 0, ADJUSTED_COST_MAX.0 + 1),
    ] {
        assert_eq!(by(large), Err(CorrectionError::TooLarge), "{large:?}");
    }
}

#[test]
fn a_cost_follows_from_its_price_and_from_tries_that_were_lost() {
    let mut request = abandoned();
    assert!(request.costs_as_priced(&price()));
    request.cost_nanos = Nanos(1_999);
    assert!(!request.costs_as_priced(&price()));
    // An answer of 2,001 tokens of input in the higher tier, after a try that is booked as expected in the lower one.
    request.usage = usage(3_001, 510);
    request.cost_nanos = Nanos(2_001 * 10 + 10 * 20 + 2_000);
    assert!(!request.costs_as_priced(&price()), "there was no try before");
    request.attempts = vec![attempt(), attempt()];
    assert!(request.costs_as_priced(&price()));
    request.cost_nanos += Nanos(1);
    assert!(!request.costs_as_priced(&price()));
}

fn attempt() -> Attempt {
    Attempt {
        upstream_id: UpstreamId(Uuid::nil()),
        upstream_model: "m".into(),
        status: None,
        error: None,
        first_byte_ms: 0,
    }
}

fn any_correction() -> impl Strategy<Value = Correction> {
    let any_usage =
        || proptest::option::of((0_u64..4_000, 0_u64..4_000).prop_map(|(input, output)| usage(input, output)));
    prop_oneof![
        any_usage().prop_map(at_price),
        (any_usage(), 0_i64..9_000).prop_map(|(usage, cost)| at_cost(usage, cost)),
        (-2_000_i64..2_000, -2_000_i64..2_000, -4_000_i64..4_000)
            .prop_map(|(input, output, cost)| Correction::By(figures(input, output, cost))),
    ]
}

proptest! {
    #[test]
    fn a_request_is_what_was_settled_and_every_difference_and_never_below_zero(
        corrections in proptest::collection::vec(any_correction(), 1..20),
    ) {
        let request = abandoned();
        let mut adjustments = Vec::new();
        for correction in corrections {
            let adjusted: Figures = adjustments.iter().copied().sum();
            let Ok(corrected) = correct(&request, adjusted, &correction) else {
                continue;
            };
            adjustments.push(corrected.difference);
            let now = Figures::of_settlement(&request) + adjustments.iter().copied().sum();
            prop_assert_eq!(now, corrected.after);
            prop_assert!(!now.is_below_zero());
            match correction {
                Correction::AtPrice { usage, price } => {
                    let usage = usage.unwrap_or(request.usage);
                    prop_assert_eq!(now, Figures::of_usage(&usage, price.cost(&usage)));
                }
                Correction::AtCost { cost_nanos, .. } => prop_assert_eq!(now.cost_nanos, cost_nanos),
                Correction::By(difference) => prop_assert_eq!(corrected.difference, difference),
            }
        }
    }
}
