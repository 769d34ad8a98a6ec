//! The account admits what its minute has room for, and says so.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::{Account, Counting};

#[tokio::test(start_paused = true)]
async fn a_minute_admits_its_limit_and_the_next_one_again() {
    for counting in [Counting::FixedWindows, Counting::SlidingWindow] {
        let mut account = Account::new(counting, Some(2), None);
        assert!(account.take(1).is_ok() && account.take(1).is_ok());
        let reached = account
            .take(1)
            .err()
            .map(|reached| (reached.name, reached.retry_after_seconds));
        assert_eq!(reached, Some(("requests", 60)));
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(account.take(1).is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn a_bucket_asks_for_no_longer_wait_than_it_needs() {
    let mut account = Account::new(Counting::TokenBucket, Some(2), None);
    assert!(account.take(1).is_ok() && account.take(1).is_ok());
    assert_eq!(
        account.take(1).err().map(|reached| reached.retry_after_seconds),
        Some(30)
    );
    tokio::time::advance(Duration::from_secs(30)).await;
    assert!(account.take(1).is_ok() && account.take(1).is_err());
}

#[tokio::test(start_paused = true)]
async fn tokens_are_limited_apart_and_a_refusal_takes_nothing() {
    let mut account = Account::new(Counting::SlidingWindow, Some(2), Some(100));
    assert!(account.take(60).is_ok());
    assert_eq!(account.take(60).err().map(|reached| reached.name), Some("tokens"));
    assert!(account.take(40).is_ok());
    let headers = account.openai_headers();
    assert_eq!(headers["x-ratelimit-remaining-tokens"], "0");
    assert_eq!(headers["x-ratelimit-remaining-requests"], "0");
    assert_eq!(headers["x-ratelimit-limit-tokens"], "100");
    assert_eq!(headers["x-ratelimit-reset-tokens"], "1m0s");
}

#[tokio::test(start_paused = true)]
async fn the_other_providers_headers_name_an_instant() {
    let mut account = Account::new(Counting::TokenBucket, Some(60), None);
    assert!((0..30).all(|_| account.take(1).is_ok()));
    let wall: DateTime<Utc> = "2026-11-30T12:00:00Z".parse().unwrap_or_default();
    let headers = account.anthropic_headers(wall);
    assert_eq!(headers["anthropic-ratelimit-requests-limit"], "60");
    assert_eq!(headers["anthropic-ratelimit-requests-remaining"], "30");
    assert_eq!(headers["anthropic-ratelimit-requests-reset"], "2026-11-30T12:00:30Z");
    assert!(!headers.contains_key("anthropic-ratelimit-tokens-limit"));
}
