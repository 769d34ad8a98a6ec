//! What providers say of accounts that several gateways use.

use domain::limits::{Dimension, Limit, Scope};
use domain::refusals::RefusalCode;
use test_redis::RedisServer;

use super::fixture::{Asking, Gateway, Servers, is_local, patient, short};
use crate::fixture::{gated, limit, on, upstream};
use crate::redis::TimeOf;
use crate::{RoomLeft, UpstreamCandidate, UpstreamRoom};

fn account(limits: Vec<Limit>) -> Asking {
    let mut asking = Asking::of(vec![]);
    asking.upstreams = vec![UpstreamCandidate {
        scope: on(upstream(1), limits),
        index: 0,
    }];
    asking
}

fn requests(remaining: u64, reset_ms: u64) -> UpstreamRoom {
    UpstreamRoom {
        requests: Some(RoomLeft {
            remaining,
            reset_ms: Some(reset_ms),
        }),
        ..UpstreamRoom::default()
    }
}

async fn tell(gateway: &Gateway, asking: &Asking, told: &UpstreamRoom) {
    let of = &asking.upstreams[0].scope;
    gateway.limits.correct_upstream(of, "m", told, gateway.now()).await;
}

async fn remaining(gateway: &Gateway, asking: &Asking) -> u64 {
    gateway.reading(asking, Dimension::Requests).await.remaining
}

async fn check_shared(servers: Servers) {
    let asking = account(vec![limit(Dimension::Requests, 100)]);
    let mut gateways = Vec::new();
    for name in ["one", "two", "three"] {
        gateways.push(Gateway::start_by(&patient(servers.url()), name, TimeOf::Caller).await);
    }
    tell(&gateways[0], &asking, &requests(3, 9_000)).await;
    let mut holds = Vec::new();
    for gateway in &gateways {
        holds.push(gateway.admitted(&asking).await);
    }
    for gateway in &gateways {
        assert_eq!(remaining(gateway, &asking).await, 0);
        let denial = gateway.admit(&asking).await.expect_err("nothing is left");
        assert_eq!(denial.code, RefusalCode::RateLimitExceeded);
        assert_eq!(denial.retry_after_ms, Some(9_000));
    }
    // What a request was answered that was sent before raises nothing; what one was answered that was sent after does.
    let now_ms = 1_000;
    gateways.iter().for_each(|gateway| gateway.signs.pass(now_ms));
    let late = UpstreamRoom {
        sent_ms_ago: now_ms + 1,
        ..requests(5, 8_000)
    };
    tell(&gateways[1], &asking, &late).await;
    assert_eq!(remaining(&gateways[2], &asking).await, 0);
    tell(
        &gateways[1],
        &asking,
        &UpstreamRoom {
            sent_ms_ago: now_ms,
            ..late
        },
    )
    .await;
    assert_eq!(remaining(&gateways[2], &asking).await, 5);
    gateways.iter().for_each(|gateway| gateway.signs.pass(8_000));
    assert_eq!(remaining(&gateways[0], &asking).await, 97);
    drop(gateways[2].admitted(&asking).await);
}

#[tokio::test]
async fn what_one_gateway_is_told_holds_for_all_until_it_is_over() {
    check_shared(Servers::one().await).await;
}

#[tokio::test]
async fn the_same_in_a_cluster() {
    check_shared(Servers::cluster().await).await;
}

#[tokio::test]
async fn a_refusal_by_another_scope_takes_nothing_of_what_is_left() {
    let servers = Servers::cluster().await;
    let gateway = Gateway::start_by(&patient(servers.url()), "one", TimeOf::Caller).await;
    let mut asking = account(vec![
        limit(Dimension::Requests, 100),
        limit(Dimension::TotalTokens, 100_000),
    ]);
    asking.scopes = vec![on(Scope::Global, vec![limit(Dimension::Concurrency, 1)])];
    let told = UpstreamRoom {
        total_tokens: requests(999, 9_000).requests,
        ..requests(9, 9_000)
    };
    tell(&gateway, &asking, &told).await;
    let _hold = gateway.admitted(&asking).await;
    let before = gateway.peek(&asking).await;
    let denial = gateway.admit(&asking).await.expect_err("one is in flight");
    assert_eq!(denial.scope, Scope::Global);
    assert_eq!(gateway.peek(&asking).await, before);
    let left: Vec<u64> = before[1..].iter().map(|reading| reading.remaining).collect();
    assert_eq!(left, [8, 799]);
}

#[tokio::test]
async fn gates_go_by_what_is_left() {
    let server = RedisServer::start().await;
    let asking = account(vec![gated(Dimension::Requests, 100)]);
    let gateway = Gateway::start(&patient(server.url()), "one").await;
    tell(&gateway, &asking, &requests(11, 9_000)).await;
    let _last = gateway.admitted(&asking).await;
    let denial = gateway.admit(&asking).await.expect_err("the gate is closed");
    assert_eq!(denial.code, RefusalCode::PriorityGated);
}

#[tokio::test]
async fn without_the_server_a_gateway_s_own_counters_hear_of_its_part() {
    let mut server = RedisServer::start().await;
    let asking = account(vec![limit(Dimension::Requests, 1_000)]);
    let gateway = Gateway::start(&short(server.url()), "one").await;
    server.kill();
    gateway.until_degraded().await;
    tell(&gateway, &asking, &requests(10, 30_000)).await;
    // Counters of one's own begin as if just used up.
    gateway.signs.pass(6_000);
    // 45 % of ten.
    assert_eq!(remaining(&gateway, &asking).await, 4);
    let mut holds = Vec::new();
    while let Ok(hold) = gateway.admit(&asking).await {
        assert!(is_local(&hold));
        holds.push(hold);
    }
    assert_eq!(holds.len(), 4);
    gateway.signs.pass(23_999);
    assert!(gateway.admit(&asking).await.is_err());
    gateway.signs.pass(1);
    holds.push(gateway.admitted(&asking).await);
}
