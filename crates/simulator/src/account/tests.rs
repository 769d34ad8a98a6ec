//! The account admits what its minute has room for.

use std::time::Duration;

use super::Account;

#[tokio::test(start_paused = true)]
async fn a_minute_admits_its_limit_and_the_next_one_again() {
    let mut account = Account::new(Some(2), None);
    assert!(account.take(1).is_ok() && account.take(1).is_ok());
    let reached = account
        .take(1)
        .err()
        .map(|reached| (reached.name, reached.retry_after_seconds));
    assert_eq!(reached, Some(("requests", 60)));
    tokio::time::advance(Duration::from_secs(60)).await;
    assert!(account.take(1).is_ok());
}

#[tokio::test(start_paused = true)]
async fn tokens_are_limited_apart_and_a_refusal_takes_nothing() {
    let mut account = Account::new(Some(2), Some(100));
    assert!(account.take(60).is_ok());
    assert_eq!(account.take(60).err().map(|reached| reached.name), Some("tokens"));
    assert!(account.take(40).is_ok());
    let headers = account.headers();
    assert_eq!(headers["x-ratelimit-remaining-tokens"], "0");
    assert_eq!(headers["x-ratelimit-remaining-requests"], "0");
    assert_eq!(headers["x-ratelimit-limit-tokens"], "100");
}
