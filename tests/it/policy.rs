//! A change in the console is in force within a second, without anybody asking for it.

use std::time::{Duration, Instant};

use chrono::Utc;
use control::limits::NodeLimits;
use test_support::tollgate::Tollgate;

#[tokio::test]
async fn a_revoked_key_and_a_new_one_are_in_force_within_a_second() {
    let tollgate = Tollgate::start().await;
    let (tenant, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    assert_eq!(tollgate.chat(&key, "Hello.").await.status, 200);

    let issued = tollgate.issue(tenant).await;
    let waited = Instant::now();
    while tollgate.chat(issued.text.reveal(), "Hello.").await.status != 200 {
        assert!(waited.elapsed() < Duration::from_secs(2), "a new key is not in force");
    }
    tollgate
        .control()
        .revoke_key(&tollgate.actor(), issued.row.id, Utc::now())
        .await
        .expect("revoked");
    let waited = Instant::now();
    while tollgate.chat(issued.text.reveal(), "Hello.").await.status != 403 {
        assert!(waited.elapsed() < Duration::from_secs(2), "a revoked key still works");
    }
}

#[tokio::test]
async fn a_budget_that_is_raised_lowered_and_cleared_is_what_is_enforced() {
    let tollgate = Tollgate::start().await;
    let with = |tokens| NodeLimits {
        monthly_tokens: tokens,
        ..NodeLimits::default()
    };
    let (tenant, key) = tollgate.tenant_with_key(with(Some(700))).await;
    let text = "Hello. [[sim: tokens=400]]";
    assert_eq!(tollgate.chat(&key, text).await.status, 200);
    assert_eq!(tollgate.chat(&key, text).await.code(), "budget_exhausted");
    let target = domain::limits::Target::Node(domain::limits::Scope::Tenant(tenant));
    let set = async |limits: &NodeLimits| {
        let version = tollgate
            .control()
            .limits_of(&tollgate.actor(), &target)
            .await
            .expect("limits")
            .version;
        tollgate
            .control()
            .set_limits(&tollgate.actor(), &target, version, limits, Utc::now())
            .await
            .expect("set");
        tollgate.in_force().await;
    };
    set(&with(Some(10_000))).await;
    assert_eq!(
        tollgate.chat(&key, text).await.status,
        200,
        "what is spent stays, and there is room above it"
    );
    set(&with(Some(500))).await;
    assert_eq!(tollgate.chat(&key, text).await.code(), "budget_exhausted");
    set(&with(None)).await;
    assert_eq!(tollgate.chat(&key, text).await.status, 200);
}
