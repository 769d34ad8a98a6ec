//! A cluster: refusals by one server of what others have given, and servers that are lost alone.

use std::time::Duration;

use domain::ids::{TenantId, UpstreamId};
use domain::limits::{Dimension, Scope};
use test_redis::{Options, RedisCluster};
use uuid::Uuid;

use super::fixture::{Asking, Gateway, Servers, is_local, patient, short, until};
use crate::fixture::{amounts, limit, on, rehearsed};
use crate::redis::health::RISE_MS;
use crate::redis::{Mode, TimeOf};
use crate::{Hold, UpstreamCandidate, names};

const MANY: u64 = 100_000;

/// A tenant and an upstream that live on these nodes.
async fn placed(cluster: &RedisCluster, tenant_on: usize, upstream_on: usize) -> (Scope, Scope) {
    let mut tenant = None;
    let mut upstream = None;
    for number in 1.. {
        let candidates = [
            (&mut tenant, tenant_on, Scope::Tenant(TenantId(Uuid::from_u128(number)))),
            (
                &mut upstream,
                upstream_on,
                Scope::Upstream(UpstreamId(Uuid::from_u128(number))),
            ),
        ];
        for (found, node, scope) in candidates {
            let key = format!("{{{}}}", names::tag(&scope, None));
            if found.is_none() && cluster.node_of(&key).await == node {
                *found = Some(scope);
            }
        }
        if let (Some(tenant), Some(upstream)) = (&tenant, &upstream) {
            return (tenant.clone(), upstream.clone());
        }
    }
    unreachable!("numbers do not end");
}

/// The node that counts what is global.
async fn global_on(cluster: &RedisCluster) -> usize {
    cluster.node_of("{global}").await
}

/// Everything is limited on every scope, with room for many requests.
fn wide(scope: Scope) -> crate::ScopeLimits {
    let limits = vec![
        limit(Dimension::Requests, MANY),
        limit(Dimension::TotalTokens, MANY * 1_000),
        limit(Dimension::Concurrency, MANY),
        limit(Dimension::BudgetCost, MANY * 1_000_000),
        // One that is passed by far and forgives.
        rehearsed(Dimension::OutputTokens, 100),
    ];
    on(scope, limits)
}

fn asking(tenant: Scope, upstream: Scope) -> Asking {
    let mut asking = Asking::of(vec![wide(Scope::Global), wide(tenant)]);
    asking.upstreams = vec![UpstreamCandidate {
        scope: wide(upstream),
        index: 1,
    }];
    asking
}

/// What every counter says of what was used, but not of when it will have refilled.
async fn counted(gateway: &Gateway, asking: &Asking) -> Vec<(i64, u64)> {
    let readings = gateway.peek(asking).await;
    readings.iter().map(|reading| (reading.used, reading.held)).collect()
}

#[tokio::test]
async fn a_refusal_by_one_scope_leaves_no_counter_of_another_changed() {
    let servers = Servers::cluster().await;
    let Servers::Cluster(cluster) = &servers else {
        unreachable!("a cluster");
    };
    let global = global_on(cluster).await;
    let (tenant, upstream) = placed(cluster, (global + 1) % 3, (global + 2) % 3).await;
    let asking = asking(tenant, upstream);
    let gateway = Gateway::start_by(&patient(servers.url()), "one", TimeOf::Caller).await;
    assert!(gateway.read_budgets(&asking, 0, &[]).await);
    // Something stands everywhere, and one part is under way.
    let settled = gateway.admitted(&asking).await;
    gateway.settle(settled, amounts(10, 10, 1_000), 1).await;
    let _open = gateway.admitted(&asking).await;
    let before = gateway.peek(&asking).await;

    let narrow = [
        limit(Dimension::Requests, 1),
        limit(Dimension::TotalTokens, 199),
        limit(Dimension::Concurrency, 1),
        limit(Dimension::BudgetCost, 1_000_000),
    ];
    for narrow in narrow {
        for place in 0..3 {
            let mut refused = asking.clone();
            let of = match place {
                2 => &mut refused.upstreams[0].scope,
                place => &mut refused.scopes[place],
            };
            let scope = of.scope.clone();
            // The limits as they are, and one more with the same counter.
            of.limits = of.limits.iter().cloned().chain([narrow.clone()]).collect();
            let denial = gateway.admit(&refused).await.expect_err("no room");
            assert_eq!(
                (&denial.scope, denial.dimension),
                (&scope, narrow.dimension),
                "{denial:?}"
            );
            assert_eq!(gateway.peek(&asking).await, before, "{scope} {:?}", narrow.dimension);
            assert_eq!(gateway.limits.unheard(), 0, "undone before it is told");
        }
    }
    let again = gateway.admitted(&asking).await;
    assert!(!is_local(&again));
    assert_eq!(gateway.mode(), Mode::Normal);
}

#[tokio::test]
async fn a_request_that_was_refused_may_ask_again() {
    let servers = Servers::cluster().await;
    let Servers::Cluster(cluster) = &servers else {
        unreachable!("a cluster");
    };
    let global = global_on(cluster).await;
    let (tenant, upstream) = placed(cluster, (global + 1) % 3, (global + 2) % 3).await;
    let asking = asking(tenant, upstream);
    let mut narrow = asking.clone();
    narrow.scopes[0] = on(Scope::Global, vec![limit(Dimension::Requests, 0)]);
    let gateway = Gateway::start(&patient(servers.url()), "one").await;
    assert!(gateway.read_budgets(&asking, 0, &[]).await);
    let admission = asking.admission();
    for _ in 0..3 {
        let refused = crate::Admission {
            scopes: &narrow.scopes,
            ..admission
        };
        assert!(gateway.limits.admit(&refused, gateway.now()).await.is_err());
    }
    let hold = gateway.limits.admit(&admission, gateway.now()).await.expect("room");
    assert!(!is_local(&hold));
}

#[tokio::test]
async fn a_tenant_s_own_refusal_stands_although_another_node_does_not_answer() {
    let options = Options::default().config("cluster-require-full-coverage no");
    let mut cluster = RedisCluster::start_with(options).await;
    let global = global_on(&cluster).await;
    let (tenant, upstream) = placed(&cluster, (global + 1) % 3, (global + 2) % 3).await;
    let mut asking = asking(tenant.clone(), upstream);
    asking.scopes[1] = on(tenant, vec![limit(Dimension::Requests, 3)]);
    let mut gateway = Gateway::start(&patient(cluster.url()), "one").await;
    assert!(gateway.read_budgets(&asking, 0, &[]).await);
    let mut holds = Vec::new();
    for _ in 0..3 {
        let mut hold = gateway.admitted(&asking).await;
        hold.mark_sent();
        holds.push(hold);
    }
    gateway.fall_silent();
    cluster.node_mut(global).kill();
    for _ in 0..10 {
        let denial = gateway.admit(&asking).await.expect_err("it is used up");
        assert_eq!(denial.dimension, Dimension::Requests);
        assert_eq!(denial.limit_value, 3, "as the shared counters say");
    }
    assert_eq!(gateway.mode(), Mode::Normal);
}

#[tokio::test]
async fn callers_that_leave_at_any_point_leave_nothing_behind() {
    let servers = Servers::cluster().await;
    let Servers::Cluster(cluster) = &servers else {
        unreachable!("a cluster");
    };
    let global = global_on(cluster).await;
    let (tenant, upstream) = placed(cluster, (global + 1) % 3, (global + 2) % 3).await;
    let asking = asking(tenant, upstream);
    let gateway = Gateway::start(&patient(servers.url()), "one").await;
    assert!(gateway.read_budgets(&asking, 0, &[]).await);
    let hold = gateway.admitted(&asking).await;
    gateway.refund(hold).await;
    let before = counted(&gateway, &asking).await;
    // The tenant's own node is asked first, then the others; each is stopped in its turn.
    for stopped in 0..3 {
        for wait_ms in [0, 20] {
            cluster.node(stopped).pause();
            let admission = asking.admission();
            let asked = gateway.limits.admit(&admission, gateway.now());
            let left = tokio::time::timeout(Duration::from_millis(wait_ms), asked).await;
            assert!(left.is_err(), "a server is stopped");
            cluster.node(stopped).resume();
            gateway.until_told().await;
            assert_eq!(
                counted(&gateway, &asking).await,
                before,
                "node {stopped} after {wait_ms} ms"
            );
        }
    }
    assert_eq!(gateway.limits.open_holds(), 0);
}

/// One node is lost; what lives on the others is there.
async fn check_a_lost_node(options: Options) {
    let mut cluster = RedisCluster::start_with(options).await;
    let global = global_on(&cluster).await;
    let beats = cluster.node_of(names::BEATS_KEY).await;
    let lost = (0..3)
        .find(|node| ![global, beats].contains(node))
        .expect("a node of neither");
    let (tenant, upstream) = placed(&cluster, lost, global).await;
    let asking = asking(tenant, upstream);
    let one = Gateway::start(&short(cluster.url()), "one").await;
    let other = Gateway::start(&short(cluster.url()), "other").await;
    until("they are read", async || one.read_budgets(&asking, 0, &[]).await).await;
    let mut holds: Vec<Hold> = vec![one.admitted(&asking).await, one.admitted(&asking).await];
    assert!(!holds.iter().any(is_local));

    cluster.node_mut(lost).kill();
    one.until_degraded().await;
    one.settle(holds.swap_remove(0), amounts(1, 1, 1_000), 1).await;
    // And it stays so for as long as the node is away.
    for _ in 0..20 {
        one.store().beat_now().await;
        assert!(one.is_degraded());
    }
    cluster.node_mut(lost).restart().await;
    one.until_back().await;
    one.signs.pass(RISE_MS);
    other.until_back().await;
    until("nothing is lost of what is held", async || {
        let readings = other.peek(&asking).await;
        let concurrency = readings
            .iter()
            .filter(|reading| reading.dimension == Dimension::Concurrency);
        concurrency.map(|reading| reading.held).eq([1, 1, 1])
    })
    .await;
    until("they are read", async || {
        one.read_budgets(&asking, 1_000, &[("one", 1)]).await
    })
    .await;
    until("it admits by the shared counters", async || {
        one.admit(&asking).await.is_ok_and(|hold| !is_local(&hold))
    })
    .await;
}

#[tokio::test]
async fn a_lost_node_is_seen_and_gone_on_without_until_it_is_back() {
    // Also where the cluster itself goes on.
    let goes_on = Options::default().config("cluster-require-full-coverage no");
    futures_util::join!(check_a_lost_node(Options::default()), check_a_lost_node(goes_on));
}
