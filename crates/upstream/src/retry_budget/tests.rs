//! Retries stay a share of the traffic.

use domain::ids::TenantId;
use proptest::prelude::*;
use uuid::Uuid;

use super::{RESERVED_RETRIES, RETRIES_SAVED_MAX, RETRY_PERCENT, RetryBudget};

fn tenant(number: u8) -> TenantId {
    TenantId(Uuid::from_u128(u128::from(number)))
}

#[test]
fn an_outage_from_the_start_spends_the_reserve_and_then_the_share() {
    let budget = RetryBudget::default();
    let mut retries = 0;
    for _ in 0..1_000 {
        budget.deposit(tenant(1));
        retries += u64::from(budget.take(tenant(1)));
    }
    assert_eq!(retries, RESERVED_RETRIES + 1_000 * RETRY_PERCENT / 100);
}

#[test]
fn quiet_times_do_not_save_up_for_ever() {
    let budget = RetryBudget::default();
    for _ in 0..10_000 {
        budget.deposit(tenant(1));
    }
    let at_once = (0..1_000).filter(|_| budget.take(tenant(1))).count() as u64;
    assert_eq!(at_once, RETRIES_SAVED_MAX);
}

#[test]
fn a_tenant_whose_requests_all_fail_leaves_the_others_their_retries() {
    let budget = RetryBudget::default();
    for _ in 0..1_000 {
        budget.deposit(tenant(1));
        budget.take(tenant(1));
        budget.deposit(tenant(2));
    }
    assert!(!budget.take(tenant(1)));
    let left = (0..1_000).filter(|_| budget.take(tenant(2))).count() as u64;
    assert!(left >= RETRIES_SAVED_MAX / 2, "{left}");
}

proptest! {
    #[test]
    fn retries_never_exceed_the_share_and_the_reserve(
        steps in prop::collection::vec((1..4_u8, any::<bool>()), 0..2_000)
    ) {
        let budget = RetryBudget::default();
        let (mut requests, mut retries) = ([0; 4], [0; 4]);
        let is_within = |requests: u64, retries: u64| retries * 100 <= requests * RETRY_PERCENT + RESERVED_RETRIES * 100;
        for (number, is_retry) in steps {
            if is_retry {
                retries[usize::from(number)] += u64::from(budget.take(tenant(number)));
            } else {
                budget.deposit(tenant(number));
                requests[usize::from(number)] += 1;
            }
            prop_assert!(is_within(requests.iter().sum(), retries.iter().sum()));
            prop_assert!(is_within(requests[usize::from(number)], retries[usize::from(number)]));
        }
    }
}
