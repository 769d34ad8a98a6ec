//! Tries end by their number, their time or their budget, on a clock that jumps from wait to wait.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode};
use tokio::time::Instant;

use super::Tries;
use crate::errors::{CallError, Failure, Refusal};
use crate::retries::Retries;
use crate::retry_budget::{RetryAccount, RetryBudget};

/// A refusal that time heals, with what it says about the wait.
fn refused(name: &'static str, value: &'static str) -> Failure {
    let mut headers = HeaderMap::new();
    headers.insert(name, HeaderValue::from_static(value));
    let refusal = Refusal::read(StatusCode::TOO_MANY_REQUESTS, &headers, b"{}", chrono::Utc::now());
    Failure::from(CallError::refused(refusal))
}

fn account(budget: RetryBudget) -> Arc<RetryAccount> {
    Arc::new(RetryAccount::new(budget, Instant::now()))
}

fn tries(retries_max: u32, total: Duration, budget: RetryBudget) -> Tries {
    let retries = Retries {
        retries_max,
        ..Retries::default()
    };
    Tries::begin(retries, account(budget), Instant::now() + total)
}

/// Fails until nothing more is tried; gives how often that was.
async fn exhaust(tries: &mut Tries, mut failure: impl FnMut() -> Failure) -> u32 {
    while tries.wait_after(failure()).await.is_ok() {}
    tries.count()
}

#[tokio::test(start_paused = true)]
async fn what_was_told_is_waited_to_the_second() {
    for (name, value, told_ms) in [("retry-after", "7", 7_000), ("retry-after-ms", "250", 250)] {
        let mut tries = tries(1, Duration::from_secs(60), RetryBudget::Unlimited);
        let began = Instant::now();
        tries.wait_after(refused(name, value)).await.expect("another try");
        let waited_ms = began.elapsed().as_millis();
        // The clock of tests has whole milliseconds.
        assert!(
            (told_ms..=told_ms + 301).contains(&waited_ms),
            "{waited_ms} ms for {told_ms}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn back_off_doubles_within_its_jitter() {
    let mut tries = tries(4, Duration::from_secs(600), RetryBudget::Unlimited);
    for middle_ms in [500.0, 1_000.0, 2_000.0, 4_000.0] {
        let began = Instant::now();
        tries.wait_after(refused("x-none", "")).await.expect("another try");
        let waited_ms = began.elapsed().as_secs_f64() * 1_000.0;
        assert!(
            (0.7 * middle_ms..=1.3 * middle_ms + 1.0).contains(&waited_ms),
            "{waited_ms} ms for {middle_ms}"
        );
    }
    assert!(tries.wait_after(refused("x-none", "")).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_batch_tries_as_long_as_its_time_lasts() {
    let total = Duration::from_secs(3_600);
    let mut tries = tries(u32::MAX, total, RetryBudget::Unlimited);
    let began = Instant::now();
    let count = exhaust(&mut tries, || refused("retry-after", "2")).await;
    // Each wait is between 2 s and 2.3 s.
    assert!((1_500..=1_800).contains(&count), "{count} tries");
    assert!(total - Duration::from_secs(3) < began.elapsed() && began.elapsed() < total);
}

#[tokio::test(start_paused = true)]
async fn a_wait_beyond_the_time_out_ends_it_at_once_and_says_until_when() {
    let mut tries = tries(4, Duration::from_secs(60), RetryBudget::Unlimited);
    let began = Instant::now();
    let error = tries
        .wait_after(refused("retry-after", "90"))
        .await
        .expect_err("no more");
    assert_eq!(began.elapsed(), Duration::ZERO);
    let refusal = error.refusal().expect("what was said");
    let left = refusal.retry_at.expect("until when") - chrono::Utc::now();
    assert!((80..=90).contains(&left.num_seconds()), "{left}");
    assert!(refusal.to_string().contains("not before 2"), "{refusal}");
}

#[tokio::test(start_paused = true)]
async fn all_calls_share_one_retry_budget() {
    let account = account(RetryBudget::Limited {
        percent: 0,
        reserve_per_minute: 3,
    });
    let deadline = Instant::now() + Duration::from_secs(600);
    let mut total = 0;
    for _ in 0..10 {
        let retries = Retries {
            retries_max: 2,
            first_ms: 1,
            longest_ms: 1,
        };
        let mut tries = Tries::begin(retries, Arc::clone(&account), deadline);
        total += exhaust(&mut tries, || refused("x-none", "")).await;
    }
    assert_eq!(total, 3);
}

#[tokio::test(start_paused = true)]
async fn what_no_wait_heals_takes_nothing_from_the_budget() {
    let account = account(RetryBudget::Limited {
        percent: 0,
        reserve_per_minute: 1,
    });
    let mut tries = Tries::begin(
        Retries::default(),
        Arc::clone(&account),
        Instant::now() + Duration::from_secs(60),
    );
    assert!(tries.wait_after(Failure::Final(CallError::Interrupted)).await.is_err());
    assert!(tries.wait_after(refused("retry-after", "90")).await.is_err());
    assert!(account.take_retry(Instant::now()), "the one retry is left");
}
