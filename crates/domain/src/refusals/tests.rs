//! Codes read back, and retry hints are whole, at least 1 and never early.

use proptest::prelude::*;

use super::{RETRY_JITTER_SECONDS_MAX, RefusalCode, retry_after_seconds};

#[test]
fn codes_read_back_and_match_their_json() {
    for code in RefusalCode::ALL {
        assert_eq!(code.as_str().parse(), Ok(code));
        assert_eq!(
            serde_json::to_value(code).ok(),
            Some(serde_json::Value::from(code.as_str()))
        );
    }
}

#[test]
fn a_job_is_offered_for_what_goes_by_itself_and_for_nothing_else() {
    let degrading: Vec<&str> = RefusalCode::ALL
        .into_iter()
        .filter(|code| code.may_degrade())
        .map(RefusalCode::as_str)
        .collect();
    assert_eq!(
        degrading,
        [
            "rate_limit_exceeded",
            "concurrency_limit_exceeded",
            "priority_gated",
            "budget_held",
            "queue_full",
            "queue_timeout",
            "upstream_unavailable",
            "budget_unknown",
            "ledger_full",
        ]
    );
    assert!(
        RefusalCode::ALL
            .into_iter()
            .all(|code| code.is_retryable() || !code.may_degrade())
    );
}

proptest! {
    #[test]
    fn a_retry_hint_is_never_early_and_bounded(wait_ms in 0_u64..40_000_000_000, random in 0.0_f64..=1.0) {
        let seconds = retry_after_seconds(wait_ms, random);
        prop_assert!(seconds >= 1 && seconds * 1_000 >= wait_ms);
        prop_assert!(seconds <= wait_ms.div_ceil(1_000).max(1) + RETRY_JITTER_SECONDS_MAX);
    }
}
