//! Retries stay within their share and reserve, whatever the order, and the reserve comes back.

use std::time::Duration;

use proptest::prelude::*;
use tokio::time::Instant;

use super::{Balance, RetryAccount, RetryBudget, SAVED_RETRIES_MAX};

/// What happens to an account.
#[derive(Clone, Copy, Debug)]
enum Step {
    Requests(u32),
    Retries(u32),
    Passes(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1_u32..200).prop_map(Step::Requests),
        (1_u32..200).prop_map(Step::Retries),
        (0_u64..90_000).prop_map(Step::Passes),
    ]
}

proptest! {
    #[test]
    fn retries_stay_within_share_and_reserve(
        percent in 0_u32..=150,
        reserve_per_minute in 0_u32..40,
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut balance = Balance::new(RetryBudget::Limited { percent, reserve_per_minute });
        let (mut elapsed, mut requests, mut retries) = (Duration::ZERO, 0_u64, 0_u64);
        for step in steps {
            match step {
                Step::Requests(count) => {
                    requests += u64::from(count);
                    (0..count).for_each(|_| balance.book_request(elapsed));
                }
                Step::Passes(ms) => elapsed += Duration::from_millis(ms),
                Step::Retries(count) => {
                    let before = retries;
                    retries += (0..count).filter(|_| balance.take_retry(elapsed)).count() as u64;
                    let at_once_max = u64::from(reserve_per_minute) + SAVED_RETRIES_MAX;
                    prop_assert!(retries - before <= at_once_max);
                }
            }
            let minutes = elapsed.as_secs_f64() / 60.0;
            let allowed =
                requests as f64 * f64::from(percent) / 100.0 + f64::from(reserve_per_minute) * (1.0 + minutes);
            prop_assert!(retries as f64 <= allowed + 1e-6, "{retries} of {allowed}");
        }
        // A minute later, the reserve is there again, and without requests nothing beyond what was saved.
        elapsed += Duration::from_secs(60);
        prop_assert!((0..reserve_per_minute).all(|_| balance.take_retry(elapsed)));
    }

    #[test]
    fn an_unlimited_budget_never_ends(retries in 1_u32..10_000) {
        let mut balance = Balance::new(RetryBudget::Unlimited);
        prop_assert!((0..retries).all(|_| balance.take_retry(Duration::ZERO)));
    }
}

#[test]
fn a_share_of_many_requests_is_saved_up() {
    let mut balance = Balance::new(RetryBudget::Limited {
        percent: 20,
        reserve_per_minute: 0,
    });
    let now = Duration::ZERO;
    assert!(!balance.take_retry(now));
    (0..50).for_each(|_| balance.book_request(now));
    assert_eq!((0..100).filter(|_| balance.take_retry(now)).count(), 10);
}

#[test]
fn an_account_goes_by_the_time_since_it_began() {
    let began = Instant::now();
    let account = RetryAccount::new(
        RetryBudget::Limited {
            percent: 0,
            reserve_per_minute: 2,
        },
        began,
    );
    account.book_request(began);
    let taken_at = |seconds| account.take_retry(began + Duration::from_secs(seconds));
    assert_eq!(
        [0, 0, 0, 29, 30, 59, 60].map(taken_at),
        [true, true, false, false, true, false, true]
    );
}
