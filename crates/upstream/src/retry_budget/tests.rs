//! Retries stay a share of the traffic.

use proptest::prelude::*;

use super::{RESERVED_RETRIES, RETRIES_SAVED_MAX, RETRY_PERCENT, RetryBudget};

#[test]
fn an_outage_from_the_start_spends_the_reserve_and_then_the_share() {
    let budget = RetryBudget::default();
    let mut retries = 0;
    for _ in 0..1_000 {
        budget.deposit();
        retries += u64::from(budget.take());
    }
    assert_eq!(retries, RESERVED_RETRIES + 1_000 * RETRY_PERCENT / 100);
}

#[test]
fn quiet_times_do_not_save_up_for_ever() {
    let budget = RetryBudget::default();
    for _ in 0..10_000 {
        budget.deposit();
    }
    let at_once = (0..1_000).filter(|_| budget.take()).count() as u64;
    assert_eq!(at_once, RETRIES_SAVED_MAX);
}

proptest! {
    #[test]
    fn retries_never_exceed_the_share_and_the_reserve(is_retry in prop::collection::vec(any::<bool>(), 0..2_000)) {
        let budget = RetryBudget::default();
        let (mut requests, mut retries) = (0, 0);
        for is_retry in is_retry {
            if is_retry {
                retries += u64::from(budget.take());
            } else {
                budget.deposit();
                requests += 1;
            }
            prop_assert!(retries * 100 <= requests * RETRY_PERCENT + RESERVED_RETRIES * 100);
        }
    }
}
