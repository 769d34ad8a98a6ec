//! Postgres away: the proxy goes on, says so, and loses nothing.

use std::time::Duration;

use control::limits::NodeLimits;
use domain::key_text::{KEY_RANDOM_BYTES, KeyText};
use test_support::tollgate::{Options, Tollgate};

/// Asks until the answer is as wanted.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while !is_so().await {
        assert!(tokio::time::Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn without_postgres_known_keys_work_and_unknown_ones_are_503() {
    let tollgate = Tollgate::start_with(Options {
        has_wire: true,
        ..Options::default()
    })
    .await;
    let limits = NodeLimits {
        monthly_tokens: Some(1_000_000),
        ..NodeLimits::default()
    };
    let (tenant, key) = tollgate.tenant_with_key(limits).await;
    let unknown = KeyText::generate(&[3; KEY_RANDOM_BYTES]);
    assert_eq!(tollgate.chat(unknown.reveal(), "Hello.").await.status, 401);
    tollgate.shipped().await;

    tollgate.wire.as_ref().expect("a wire").cut();
    until("an unknown key cannot be verified", async || {
        tollgate.chat(unknown.reveal(), "Hello.").await.status == 503
    })
    .await;
    let answer = tollgate.chat(unknown.reveal(), "Hello.").await;
    assert_eq!(answer.code(), "key_unverifiable");
    assert!(!answer.header("retry-after").is_empty());
    for _ in 0..5 {
        assert_eq!(tollgate.chat(&key, "Hello.").await.status, 200);
    }
    let mut browser = tollgate.browser();
    let ready = browser.get("/readyz").await;
    assert_eq!(ready.status, 200, "it still serves");
    assert!(
        ready.json()["degraded"].as_array().is_some_and(|list| !list.is_empty()),
        "{}",
        ready.text()
    );
    assert_eq!(browser.get("/healthz").await.status, 200);
    let console = browser.visit("/").await;
    assert_eq!(console.status, 503, "the console says so");

    tollgate.wire.as_ref().expect("a wire").mend();
    until("unknown keys are unknown again", async || {
        tollgate.chat(unknown.reveal(), "Hello.").await.status == 401
    })
    .await;
    tollgate.shipped().await;
    let rows: i64 = sqlx::query_scalar("select count(*) from settlements where tenant_id = $1")
        .bind(tenant.0)
        .fetch_one(&mut tollgate.sql().await)
        .await
        .expect("a count");
    assert_eq!(rows, 5);
}
