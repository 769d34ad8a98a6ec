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
