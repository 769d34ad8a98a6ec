//! A hard budget is never passed: at a thousand requests at once, over one gateway or three, whatever keeps the counters.

use control::limits::NodeLimits;
use domain::ids::TenantId;
use domain::limits::{Dimension, Scope};
use domain::money::Nanos;
use domain::prices::Rates;
use limits::RedisSettings;
use serde_json::Value;
use test_redis::{RedisCluster, RedisServer};
use test_support::booked::Booked;
use test_support::fleet::{Fleet, count_of, flood, until};
use test_support::tollgate::Options;

use crate::fleet::{asks_for, shared};

/// What a request of [`ask`] is answered with, in tokens: as much as is held for it.
const OUTPUT: u64 = 100;
/// Requests at once.
const AT_ONCE: usize = 1_000;
/// Half a unit of money, in nano-units. A request of [`ask`] costs about two thousandths.
const BUDGET: i64 = 500_000_000;
/// Of the budget, what must have been spent before requests are refused, in percent: some of it is set aside.
const SPENT_PERCENT_MIN: i64 = 85;

fn ask() -> Value {
    let mut body = asks_for(OUTPUT);
    body["model"] = "dear".into();
    body
}

/// A tenant with this budget and a model of which a few hundred answers spend it.
async fn tenant_with_budget(fleet: &Fleet) -> (TenantId, String) {
    let upstream = fleet.first.upstream("dear", &fleet.first.simulator.base_url()).await;
    // Input costs next to nothing, so that a request's cost is its ceiling's but for a little.
    let rates = Rates::flat(1_000_000, 20_000_000_000);
    fleet.first.model("dear", upstream, Some(rates)).await;
    fleet
        .tenant_with_key(NodeLimits {
            monthly_cost: Some(Nanos(BUDGET)),
            ..NodeLimits::default()
        })
        .await
}

/// Floods the gateways until nothing is admitted any more, and holds the ledger to the budget.
async fn spend_all(fleet: &Fleet, tenant: TenantId, key: &str) -> Booked {
    let browsers = fleet.browsers();
    let before = fleet.booked(tenant).await;
    let answers = flood(&browsers, key, AT_ONCE, &ask()).await;
    let admitted = count_of(&answers, 200);
    assert_eq!(admitted + count_of(&answers, 429), AT_ONCE, "{:?}", odd(&answers));
    let booked = fleet.booked(tenant).await;
    assert_eq!(booked.ran - before.ran, admitted as i64);
    assert_eq!(booked.refused - before.refused, (AT_ONCE - admitted) as i64);
    assert_kept(&booked);
    // What was held beyond the use has come back, and is spent by whoever comes later.
    flood(&browsers, key, AT_ONCE / 4, &ask()).await;
    let booked = fleet.booked(tenant).await;
    assert_kept(&booked);
    assert!(
        booked.cost_nanos * 100 >= BUDGET * SPENT_PERCENT_MIN,
        "hardly spent: {booked:?}"
    );
    for place in 0..=fleet.others.len() {
        let reading = fleet
            .reading(place, &Scope::Tenant(tenant), Dimension::BudgetCost)
            .await;
        assert_eq!(reading.held, 0, "{reading:?}");
        assert!(reading.used >= booked.cost_nanos, "{reading:?} of {booked:?}");
    }
    booked
}

/// What the ledger says while the shared counters hear of nothing.
async fn booked_without_counters(fleet: &Fleet, tenant: TenantId) -> Booked {
    fleet.first.shipped().await;
    for other in &fleet.others {
        other.shipped().await;
    }
    Booked::of(tenant, &mut fleet.first.sql().await).await
}

fn assert_kept(booked: &Booked) {
    assert!(booked.cost_nanos <= BUDGET, "{booked:?}");
    assert_eq!(booked.overrun_nanos, 0);
}

fn odd(answers: &[test_support::http::Answer]) -> Vec<String> {
    let is_odd = |answer: &&test_support::http::Answer| answer.status != 200 && answer.status != 429;
    answers
        .iter()
        .filter(is_odd)
        .take(3)
        .map(|answer| answer.text())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_requests_at_once_do_not_pass_a_budget_in_memory() {
    let fleet = Fleet::start(1, Options::default()).await;
    let (tenant, key) = tenant_with_budget(&fleet).await;
    spend_all(&fleet, tenant, &key).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_requests_at_once_over_three_gateways_do_not_pass_a_budget() {
    let redis = RedisServer::start().await;
    let fleet = Fleet::start(3, shared(redis.url())).await;
    let (tenant, key) = tenant_with_budget(&fleet).await;
    spend_all(&fleet, tenant, &key).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_requests_at_once_over_three_gateways_do_not_pass_a_budget_in_a_cluster() {
    let redis = RedisCluster::start().await;
    let fleet = Fleet::start(3, shared(redis.url())).await;
    let (tenant, key) = tenant_with_budget(&fleet).await;
    spend_all(&fleet, tenant, &key).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_requests_at_once_do_not_pass_a_budget_while_redis_is_gone_and_when_it_is_back() {
    let mut redis = RedisServer::start().await;
    let fleet = Fleet::start(3, shared(redis.url())).await;
    let (tenant, key) = tenant_with_budget(&fleet).await;
    let browsers = fleet.browsers();
    // Each of them meets the budget, and sets a part of it aside for such a day.
    assert_eq!(count_of(&flood(&browsers, &key, 9, &ask()).await, 200), 9);
    until("every gateway has set its part aside", async || {
        let mut members = 0;
        for set_aside in redis.command(&["KEYS", "*:aside"]).await.lines() {
            members += redis.command(&["ZCARD", set_aside]).await.parse().unwrap_or(0);
        }
        members == 3
    })
    .await;

    redis.kill();
    let answers = flood(&browsers, &key, AT_ONCE, &ask()).await;
    let admitted = count_of(&answers, 200) as i64;
    assert!(admitted > 0, "each has a part of the budget to spend by itself");
    let without = booked_without_counters(&fleet, tenant).await;
    assert_eq!(without.ran, 9 + admitted);
    assert_kept(&without);
    assert!(
        without.cost_nanos * 100 <= BUDGET * 20,
        "no more than what was set aside: {without:?}"
    );

    redis.restart().await;
    until("the counters are shared again", async || {
        fleet.gateways().all(|gateway| gateway.status().counters == "redis")
    })
    .await;
    fleet.open(&Scope::Tenant(tenant)).await;
    let booked = spend_all(&fleet, tenant, &key).await;
    assert!(booked.ran > without.ran);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_that_never_heard_of_redis_open_no_budget() {
    let mut redis = RedisServer::start().await;
    let settings = RedisSettings::new(redis.url());
    redis.kill();
    let options = Options {
        redis: Some(settings),
        ..Options::default()
    };
    let tollgate = test_support::tollgate::Tollgate::start_with(options).await;
    let limits = NodeLimits {
        monthly_tokens: Some(1_000_000),
        ..NodeLimits::default()
    };
    let (_, key) = tollgate.tenant_with_key(limits).await;
    let refused = tollgate.chat(&key, "Hello.").await;
    assert_eq!(
        (refused.status.as_u16(), refused.code().as_str()),
        (503, "budget_unknown")
    );
    assert_eq!(refused.header("x-ratelimit-mode"), "degraded");

    redis.restart().await;
    until("the budget opens when Redis is there", async || {
        tollgate.chat(&key, "Hello.").await.status == 200
    })
    .await;
}
