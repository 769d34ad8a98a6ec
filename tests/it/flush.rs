//! Redis that has forgotten everything while requests run: spent budgets stay spent, and all others open again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use control::limits::NodeLimits;
use domain::limits::{Dimension, Scope};
use futures_util::future::join_all;
use gateway::clock::Clock as _;
use limits::BudgetKey;
use simulator::Stats;
use test_redis::RedisServer;
use test_support::fleet::{Fleet, count_of, flood, until, until_within};
use test_support::http::Answer;
use test_support::tollgate::{CHAT_PATH, INSTANCE};
use tokio::task::JoinHandle;

use crate::fleet::{asks_for, shared};

/// How soon a budget with room is open again.
const RECOVERY: Duration = Duration::from_secs(8);
/// How often Redis forgets.
const FLUSHES: usize = 1;
/// Requests that are served before it does.
const SERVED_BETWEEN: u64 = 60;

fn budget(tokens: u64) -> NodeLimits {
    NodeLimits {
        monthly_tokens: Some(tokens),
        ..NodeLimits::default()
    }
}

/// Asks for `tokens` by this key at every gateway, one request after the other at each, until told to stop.
fn traffic(fleet: &Fleet, key: &str, tokens: u64, stop: &Arc<AtomicBool>) -> JoinHandle<Vec<Answer>> {
    let (browsers, key, stop) = (fleet.browsers(), key.to_owned(), Arc::clone(stop));
    tokio::spawn(async move {
        let each = browsers.iter().map(async |browser| {
            let mut answers = Vec::new();
            while !stop.load(Ordering::SeqCst) {
                answers.push(browser.post_json(CHAT_PATH, &key, &asks_for(tokens)).await);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            answers
        });
        join_all(each).await.into_iter().flatten().collect()
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flushed_redis_opens_no_spent_budget_and_closes_no_other_for_long() {
    let redis = RedisServer::start().await;
    let fleet = Fleet::start(3, shared(redis.url())).await;
    let (spent, spent_key) = fleet.named_tenant_with_key("Spent", budget(1_000)).await;
    let (roomy, roomy_key) = fleet.named_tenant_with_key("Roomy", budget(100_000_000)).await;
    let browsers = fleet.browsers();
    // Spent but for less than a request.
    until("the budget is spent", async || {
        let answers = flood(&browsers, &spent_key, 9, &asks_for(100)).await;
        count_of(&answers, 200) == 0 && answers.iter().all(|answer| answer.code() == "budget_exhausted")
    })
    .await;
    let before = fleet.booked(spent).await;
    assert!(before.tokens <= 1_000, "{before:?}");

    let stop = Arc::new(AtomicBool::new(false));
    let refused = traffic(&fleet, &spent_key, 100, &stop);
    let served = traffic(&fleet, &roomy_key, 10, &stop);
    for _ in 0..FLUSHES {
        let seen = fleet.first.simulator.stats().requests_received;
        let is_lively = |stats: &Stats| stats.requests_received >= seen + SERVED_BETWEEN;
        fleet.first.simulator.wait_until(is_lively).await;
        redis.command(&["FLUSHALL"]).await;
        for browser in &browsers {
            until_within(RECOVERY, "a budget with room is open", async || {
                browser.post_json(CHAT_PATH, &roomy_key, &asks_for(10)).await.status == 200
            })
            .await;
        }
        let node = Scope::Tenant(spent);
        until_within(RECOVERY, "what is spent is known again", async || {
            let reading = fleet.reading(0, &node, Dimension::BudgetTokens).await;
            reading.is_known && reading.used == before.tokens
        })
        .await;
    }
    stop.store(true, Ordering::SeqCst);
    let refused = refused.await.expect("it ends");
    let served = served.await.expect("it ends");
    assert!(refused.len() > 20 && count_of(&served, 200) as u64 >= SERVED_BETWEEN);
    for answer in &refused {
        let told = (answer.status.as_u16(), answer.code());
        assert!(
            matches!(
                (told.0, told.1.as_str()),
                (429, "budget_exhausted") | (503, "budget_unknown")
            ),
            "{told:?}"
        );
        assert!(!answer.header("retry-after").is_empty());
    }
    for answer in served.iter().filter(|answer| answer.status != 200) {
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (503, "budget_unknown")
        );
    }
    // Nothing is lost, and nothing is counted twice.
    let after = fleet.booked(spent).await;
    assert_eq!((after.ran, after.tokens), (before.ran, before.tokens));
    assert!(after.refused - before.refused >= refused.len() as i64);
    let booked = fleet.booked(roomy).await;
    assert!(booked.ran >= count_of(&served, 200) as i64);
    fleet.agrees(roomy, &booked).await;
}

#[tokio::test]
async fn what_runs_while_redis_is_flushed_is_held_again_before_its_budget_opens() {
    let redis = RedisServer::start().await;
    let fleet = Fleet::start(3, shared(redis.url())).await;
    let (tenant, key) = fleet.tenant_with_key(budget(13_000)).await;
    let browsers = fleet.browsers();
    assert_eq!(count_of(&flood(&browsers, &key, 9, &asks_for(100)).await, 200), 9);
    fleet.first.simulator.hold();
    let running = tokio::spawn({
        let (browsers, key) = (browsers.clone(), key.clone());
        async move { flood(&browsers, &key, 9, &asks_for(1_000)).await }
    });
    fleet.first.simulator.wait_parked(9).await;
    let node = Scope::Tenant(tenant);
    let before = fleet.reading(0, &node, Dimension::BudgetTokens).await;
    assert!(before.held >= 9_000, "{before:?}");

    redis.command(&["FLUSHALL"]).await;
    // Nobody asks for it, so that only the gateways themselves can notice.
    until("the budget is open", async || {
        fleet.reading(0, &node, Dimension::BudgetTokens).await.is_known
    })
    .await;
    let after = fleet.reading(0, &node, Dimension::BudgetTokens).await;
    assert_eq!((after.used, after.held), (before.used, before.held));
    let too_much = browsers[1].post_json(CHAT_PATH, &key, &asks_for(3_000)).await;
    assert_eq!(too_much.code(), "budget_held");
    fleet.first.simulator.release_all();
    assert_eq!(count_of(&running.await.expect("it ends"), 200), 9);
    let booked = fleet.booked(tenant).await;
    let reading = fleet.reading(2, &node, Dimension::BudgetTokens).await;
    assert_eq!((reading.used, reading.held), (booked.tokens, 0));
}

#[tokio::test]
async fn a_base_that_was_read_before_redis_forgot_everything_opens_nothing() {
    let redis = RedisServer::start().await;
    let fleet = Fleet::start(2, shared(redis.url())).await;
    let (tenant, key) = fleet.tenant_with_key(budget(1_000)).await;
    let browsers = fleet.browsers();
    assert_eq!(count_of(&flood(&browsers, &key, 9, &asks_for(100)).await, 200), 7);
    fleet.shipped().await;

    // As a gateway does each minute, but that Redis forgets in between what was settled past the marks.
    let gateway = &fleet.first.running.gateway;
    let policy = gateway.policy().expect("a policy");
    let (zone, now) = (policy.settings.time_zone, fleet.first.clock.now());
    let mut nodes = policy.known_scopes().into_iter();
    let node = nodes
        .find(|node| node.scope == Scope::Tenant(tenant))
        .expect("the tenant");
    let read = [BudgetKey::of(&node, &node.limits[0], now.wall, zone)];
    let limits = gateway.limits();
    let begun = limits
        .begin_budgets(&read, || 0, INSTANCE, policy.version, zone, now)
        .await;
    assert_eq!(begun.wanted, read, "it is to be read again");
    assert!(begun.closed.is_empty(), "its base is known");
    redis.command(&["FLUSHALL"]).await;
    let marks = BTreeMap::from([(INSTANCE.to_owned(), 0)]);
    assert!(!limits.set_budget(&read[0], 0, &marks, INSTANCE, zone, now).await);
    let answers = flood(&browsers, &key, 9, &asks_for(100)).await;
    assert_eq!(count_of(&answers, 200), 0);
}
