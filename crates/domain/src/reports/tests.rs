use super::*;

fn at(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

fn november() -> Span {
    Span {
        start: at("2026-11-01T00:00:00Z"),
        end: at("2026-12-01T00:00:00Z"),
    }
}

#[test]
fn a_quantile_lies_within_its_bucket() {
    let mut latencies = Latencies::default();
    assert_eq!(latencies.quantile_ms(0.5), None);
    latencies.0[1] = 10; // 10 to 25 ms
    latencies.0[3] = 10; // 50 to 100 ms
    assert_eq!(latencies.quantile_ms(0.0), Some(10));
    assert_eq!(latencies.quantile_ms(0.25), Some(18));
    assert_eq!(latencies.quantile_ms(0.5), Some(25));
    assert_eq!(latencies.quantile_ms(0.75), Some(75));
    assert_eq!(latencies.quantile_ms(1.0), Some(100));
    latencies.0[LATENCY_BUCKETS - 1] = 100;
    assert_eq!(latencies.quantile_ms(0.9), Some(300_000));
}

#[test]
fn a_month_is_final_when_it_is_over_and_every_gateway_has_shipped_it() {
    let check = |now: &str, until: &[&str], state: MonthState, complete_until: &str, waiting: usize| {
        let gateways = until
            .iter()
            .enumerate()
            .map(|(n, until)| (format!("gateway-{n}"), at(until)));
        let completeness = Completeness::new(november(), at(now), gateways);
        assert_eq!(completeness.state, state);
        assert_eq!(completeness.complete_until, at(complete_until));
        assert_eq!(completeness.waiting_for.len(), waiting);
    };
    let (open, closing, done) = (MonthState::Open, MonthState::Closing, MonthState::Final);
    check(
        "2026-11-20T12:00:00Z",
        &["2026-11-20T11:59:58Z"],
        open,
        "2026-11-20T11:59:58Z",
        0,
    );
    check("2026-11-20T12:00:00Z", &[], open, "2026-11-20T12:00:00Z", 0);
    check(
        "2026-12-01T00:00:05Z",
        &["2026-11-30T23:59:50Z", "2026-12-01T00:00:04Z"],
        closing,
        "2026-11-30T23:59:50Z",
        1,
    );
    check(
        "2026-12-01T00:00:05Z",
        &["2026-12-01T00:00:01Z"],
        done,
        "2026-12-01T00:00:00Z",
        0,
    );
    check("2026-12-09T00:00:00Z", &[], done, "2026-12-01T00:00:00Z", 0);
}

#[test]
fn a_ratio_is_rounded_to_hundredths_and_exact_at_any_size() {
    let ratio = |expected, used| Estimated { expected, used }.ratio_hundredths();
    assert_eq!(ratio(100, 100), Some(100));
    assert_eq!(ratio(150, 100), Some(150));
    assert_eq!(ratio(1, 3), Some(33));
    assert_eq!(ratio(2, 3), Some(67));
    assert_eq!(ratio(0, 5), Some(0));
    assert_eq!(ratio(5, 0), None);
    assert_eq!(ratio(u64::MAX, u64::MAX), Some(100));
    assert_eq!(ratio(u64::MAX, 1), Some(u64::MAX));
}

#[test]
fn estimates_leave_adjustments_out() {
    let totals = Totals {
        requests: 4,
        estimated_requests: 1,
        usage: TokenUsage {
            input_fresh_tokens: 60,
            cache_read_tokens: 40,
            output_tokens: 30,
            reasoning_tokens: 10,
            ..TokenUsage::default()
        },
        expected_input_tokens: 110,
        expected_output_tokens: 60,
        expected_cost: Nanos(900),
        cost: Nanos(600),
        overrun: Nanos(50),
        adjustments: 1,
        adjusted_input_tokens: 1_000,
        adjusted_output_tokens: 1_000,
        adjusted_cost: Nanos(-600),
        ..Totals::default()
    };
    let estimated = |expected, used| Estimated { expected, used };
    assert_eq!(
        Estimates::of(&totals),
        Estimates {
            requests: 4,
            estimated_requests: 1,
            input: estimated(110, 100),
            output: estimated(60, 30),
            cost: estimated(900, 600),
            overrun: Nanos(50),
        }
    );
}

#[test]
fn adding_totals_leaves_no_figure_out() {
    let totals = Totals {
        requests: 1,
        failed_requests: 2,
        unpriced_requests: 3,
        estimated_requests: 4,
        usage: TokenUsage {
            input_fresh_tokens: 5,
            cache_read_tokens: 6,
            cache_write_5m_tokens: 7,
            cache_write_1h_tokens: 8,
            output_tokens: 9,
            reasoning_tokens: 10,
        },
        expected_input_tokens: 11,
        expected_output_tokens: 12,
        expected_cost: Nanos(13),
        cost: Nanos(14),
        overrun: Nanos(15),
        adjustments: 16,
        adjusted_input_tokens: -17,
        adjusted_output_tokens: 18,
        adjusted_cost: Nanos(-19),
        queue_ms: 20,
        total_latencies: Latencies([21; LATENCY_BUCKETS]),
        first_byte_latencies: Latencies([22; LATENCY_BUCKETS]),
        refusals: BTreeMap::from([("rate_limit_exceeded".to_owned(), 23)]),
    };
    let mut sum = totals.clone();
    sum += &totals;
    sum += &Totals {
        refusals: BTreeMap::from([("queue_full".to_owned(), 1)]),
        ..Totals::default()
    };
    assert_eq!(sum.refusals.remove("queue_full"), Some(1));
    let doubled = doubled(serde_json::to_value(&totals).unwrap());
    assert_eq!(serde_json::to_value(&sum).unwrap(), doubled);
}

fn doubled(value: serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    match value {
        Value::Number(number) => (number.as_i64().unwrap() * 2).into(),
        Value::Array(values) => values.into_iter().map(doubled).collect(),
        Value::Object(fields) => fields.into_iter().map(|(name, value)| (name, doubled(value))).collect(),
        other => other,
    }
}
