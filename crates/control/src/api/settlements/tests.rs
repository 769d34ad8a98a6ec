//! The arithmetic of a cost comes to the cost.

use domain::ids::PriceId;
use domain::prices::Rates;
use domain::usage::TokenUsage;
use proptest::prelude::*;
use uuid::Uuid;

use super::*;

proptest! {
    #[test]
    fn lines_add_up_and_are_rounded_up_once(
        tokens in prop::array::uniform5(0_u64..3_000_000),
        rates in prop::array::uniform5(0_i64..80_000_000_000),
    ) {
        let usage = TokenUsage {
            input_fresh_tokens: tokens[0],
            cache_read_tokens: tokens[1],
            cache_write_5m_tokens: tokens[2],
            cache_write_1h_tokens: tokens[3],
            output_tokens: tokens[4],
            reasoning_tokens: 0,
        };
        let rates = Rates {
            input_nanos_per_mtok: rates[0],
            cache_read_nanos_per_mtok: rates[1],
            cache_write_5m_nanos_per_mtok: rates[2],
            cache_write_1h_nanos_per_mtok: rates[3],
            output_nanos_per_mtok: rates[4],
        };
        let price = Price {
            id: PriceId(Uuid::nil()),
            model: "m".to_owned(),
            valid_from: chrono::DateTime::UNIX_EPOCH,
            valid_until: None,
            rates,
            tiers: Vec::new(),
        };
        let settlement = settled(usage, price.cost(&usage));
        let value = arithmetic(&settlement, &price);
        let exact = |value: &Value| value.as_str().unwrap().replace('.', "").parse::<i128>().unwrap();
        let lines = value["lines"].as_array().unwrap();
        let sum: i128 = lines.iter().map(|line| exact(&line["amount"])).sum();
        prop_assert_eq!(exact(&value["sum"]), sum);
        let rounded_up: Nanos = value["rounded_up"].as_str().unwrap().parse().unwrap();
        prop_assert_eq!(i128::from(rounded_up.0), (sum + 999_999) / 1_000_000);
        prop_assert_eq!(rounded_up, settlement.cost_nanos);
        prop_assert_eq!(&value["is_cost_as_priced"], true);
    }
}

fn settled(usage: TokenUsage, cost: Nanos) -> Settlement {
    let mut settlement = json!({
        "id": Uuid::nil(), "tenant_id": Uuid::nil(), "user_id": null, "key_id": Uuid::nil(), "model": "m",
        "dialect": "openai", "endpoint": "chat/completions", "priority": "default", "is_streamed": false, "tags": {},
        "instance": "one", "user_agent": null, "admitted_at": "2026-11-01T00:00:00Z",
        "settled_at": "2026-11-01T00:00:01Z", "upstream_id": null, "upstream_model": null, "upstream_request_id": null,
        "outcome": "completed", "status": 200, "attempts": [], "usage_source": "reported", "expected_input_tokens": 0,
        "expected_output_tokens": 0, "expected_cost_nanos": 0, "ceiling_input_tokens": 0, "ceiling_output_tokens": 0,
        "ceiling_cost_nanos": 0, "cost_nanos": cost, "overrun_nanos": 0, "price_id": null, "is_unpriced": false,
        "queue_ms": 0, "first_byte_ms": 1, "total_ms": 2, "rehearsed": [],
    });
    for (name, value) in json!(usage).as_object().unwrap() {
        settlement[name] = value.clone();
    }
    serde_json::from_value(settlement).unwrap()
}
