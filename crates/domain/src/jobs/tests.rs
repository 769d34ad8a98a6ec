//! Words read back, and a wait is never shorter than it was told, nor without a bound.

use proptest::prelude::*;

use super::{JOB_RETRY_MS_MAX, JobStatus, job_retry_ms};

#[test]
fn words_read_back_and_match_their_json() {
    for status in JobStatus::ALL {
        assert_eq!(status.as_str().parse(), Ok(status));
        assert_eq!(
            serde_json::to_value(status).ok(),
            Some(serde_json::Value::from(status.as_str()))
        );
    }
}

#[test]
fn waits_double_up_to_their_bound() {
    assert_eq!(job_retry_ms(0, None, 0.0), 1_000);
    assert_eq!(job_retry_ms(3, None, 0.0), 8_000);
    assert_eq!(job_retry_ms(3, None, 1.0), 12_000);
    assert_eq!(job_retry_ms(30, None, 0.0), JOB_RETRY_MS_MAX);
    assert_eq!(job_retry_ms(0, Some(3_600_000), 0.0), 3_600_000);
}

proptest! {
    #[test]
    fn a_wait_is_never_early_and_bounded(tries in 0_u32.., told_ms in 0_u64..=86_400_000, random in 0.0_f64..=1.0) {
        let wait_ms = job_retry_ms(tries, Some(told_ms), random);
        prop_assert!(wait_ms >= told_ms && wait_ms >= 1_000);
        prop_assert!(wait_ms <= told_ms.max(JOB_RETRY_MS_MAX) + JOB_RETRY_MS_MAX / 2);
    }
}
