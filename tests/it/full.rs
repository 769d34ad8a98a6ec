//! The journal at its limits: full, or on a disk that refuses. Nothing begins that could not be booked, everything under
//! way ends as it should, and every refusal is counted.

use std::time::Duration;

use control::limits::NodeLimits;
use domain::ids::TenantId;
use domain::limits::{Dimension, Scope, Target};
use domain::money::Nanos;
use domain::readings::Reading;
use gateway::clock::Clock as _;
use ledger::JournalSettings;
use sqlx::Row as _;
use test_support::tollgate::{Options, Tollgate};

/// Asks until it is so.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while !is_so().await {
        assert!(tokio::time::Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn costing(nanos: i64) -> NodeLimits {
    NodeLimits {
        monthly_cost: Some(Nanos(nanos)),
        ..NodeLimits::default()
    }
}

/// The tenant's budget as its counter tells it.
async fn budget(tollgate: &Tollgate, tenant: TenantId) -> Reading {
    let gateway = &tollgate.running.gateway;
    let policy = gateway.policy().expect("a policy");
    let nodes = policy.known_scopes();
    let node = nodes
        .into_iter()
        .find(|node| node.scope == Scope::Tenant(tenant))
        .expect("the tenant");
    let readings = gateway
        .limits()
        .peek(&[node], None, None, policy.settings.time_zone, tollgate.clock.now())
        .await;
    let mut budgets = readings
        .into_iter()
        .filter(|reading| reading.dimension == Dimension::BudgetCost);
    budgets.next().expect("a budget")
}

/// What the ledger in Postgres says of a tenant: rows that ran, their cost, and refusals with this code.
async fn ledger_of(tollgate: &Tollgate, tenant: TenantId, code: &str) -> (i64, i64, i64) {
    let row = sqlx::query(
        "select (select count(*) from settlements where tenant_id = $1),
                (select coalesce(sum(cost_nanos), 0)::bigint from settlements where tenant_id = $1),
                (select coalesce(sum(refusal_count), 0)::bigint from rejections where tenant_id = $1 and code = $2)",
    )
    .bind(tenant.0)
    .bind(code)
    .fetch_one(&mut tollgate.sql().await)
    .await
    .expect("a row");
    (row.get(0), row.get(1), row.get(2))
}

async fn is_nothing_lost(tollgate: &Tollgate) -> bool {
    let metrics = tollgate.browser().get("/metrics").await.text();
    let mut lines = metrics.lines();
    lines.all(|line| !line.starts_with("tollgate_ledger_lost_total") || line.ends_with(" 0"))
}

#[tokio::test]
async fn a_full_journal_refuses_what_is_new_ends_what_runs_and_counts_every_refusal() {
    let tollgate = Tollgate::start_with(Options {
        has_wire: true,
        journal: JournalSettings {
            segment_bytes: 8_000,
            bytes_max: 60_000,
            ..JournalSettings::default()
        },
        ..Options::default()
    })
    .await;
    let (tenant, key) = tollgate.tenant_with_key(costing(1_000_000_000_000)).await;
    let stream = tollgate
        .chat_stream(&key, "Hello. [[sim: tokens=20 hold-after-chunks=2]]")
        .await;
    tollgate.simulator.wait_parked(1).await;
    tollgate.wire().cut();

    let mut ran = 1;
    loop {
        let answer = tollgate.chat(&key, "Hello.").await;
        if answer.status != 200 {
            assert_eq!((answer.status.as_u16(), answer.code().as_str()), (503, "ledger_full"));
            break;
        }
        ran += 1;
        assert!(ran < 100, "the journal never becomes full");
    }
    // From the twenty-first in a minute on they are folded, and none of them finds room.
    let mut refused = 1;
    for _ in 0..50 {
        assert_eq!(tollgate.chat(&key, "Hello.").await.code(), "ledger_full");
        refused += 1;
    }
    let received = tollgate.simulator.stats().requests_received;
    assert_eq!(received, ran, "nothing went to the provider unbooked");
    tollgate.simulator.release_all();
    let text = stream.rest().await;
    assert!(text.ends_with("data: [DONE]\n\n"), "what runs is finished: {text}");

    tollgate.wire().mend();
    until("there is room again", async || {
        let is_served = tollgate.chat(&key, "Hello.").await.status == 200;
        if is_served {
            ran += 1;
        } else {
            refused += 1;
        }
        is_served
    })
    .await;
    tollgate.shipped().await;
    let (rows, cost, refusals) = ledger_of(&tollgate, tenant, "ledger_full").await;
    assert_eq!((rows as u64, refusals), (ran, refused));
    assert_eq!(budget(&tollgate, tenant).await.used, cost);
    assert!(is_nothing_lost(&tollgate).await);
}

#[tokio::test]
async fn a_settlement_that_waited_for_the_disk_counts_once() {
    let tollgate = Tollgate::start_with(Options {
        // A file for each record, so that taking the directory away makes the next one fail.
        journal: JournalSettings {
            segment_bytes: 1,
            ..JournalSettings::default()
        },
        ..Options::default()
    })
    .await;
    let (tenant, key) = tollgate.tenant_with_key(costing(1_000_000_000_000)).await;
    assert_eq!(tollgate.chat(&key, "Hello.").await.status, 200);
    let stream = tollgate
        .chat_stream(&key, "Hello. [[sim: tokens=20 hold-after-chunks=2]]")
        .await;
    tollgate.simulator.wait_parked(1).await;

    let (journal, away) = (tollgate.data_dir().join("journal"), tollgate.data_dir().join("away"));
    std::fs::rename(&journal, &away).expect("the disk fails");
    tollgate.simulator.release_all();
    assert!(stream.rest().await.ends_with("data: [DONE]\n\n"));
    for _ in 0..3 {
        assert_eq!(tollgate.chat(&key, "Hello.").await.code(), "ledger_full");
    }
    let at_once = budget(&tollgate, tenant).await;
    assert_eq!(at_once.held, 0, "the caller's next request finds the room");
    std::fs::rename(&away, &journal).expect("the disk is mended");

    tollgate.shipped().await;
    let (rows, cost, refusals) = ledger_of(&tollgate, tenant, "ledger_full").await;
    assert_eq!((rows, refusals), (2, 3));
    assert_eq!(at_once.used, cost);
    // Another budget begins; soon after all are read again, and this one's base contains both rows, and once.
    sqlx::query(
        "update settlement_rollups set adjusted_cost_nanos = 7
         where ctid = (select min(ctid) from settlement_rollups where tenant_id = $1)",
    )
    .bind(tenant.0)
    .execute(&mut tollgate.sql().await)
    .await
    .expect("a sign that it is read");
    tollgate.tenant("Another", costing(1)).await;
    tollgate.in_force().await;
    until("the budget is read again", async || {
        budget(&tollgate, tenant).await.used == cost + 7
    })
    .await;
    assert!(is_nothing_lost(&tollgate).await);
}

#[tokio::test]
async fn a_budget_made_while_a_request_runs_counts_it_when_it_ends() {
    let tollgate = Tollgate::start().await;
    let (tenant, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    assert_eq!(tollgate.chat(&key, "Before.").await.status, 200);
    let stream = tollgate
        .chat_stream(&key, "Hello. [[sim: tokens=20 hold-after-chunks=2]]")
        .await;
    tollgate.simulator.wait_parked(1).await;

    let target = Target::Node(Scope::Tenant(tenant));
    let view = tollgate.control().limits_of(&tollgate.actor(), &target).await;
    tollgate
        .control()
        .set_limits(
            &tollgate.actor(),
            &target,
            view.expect("its limits").version,
            &costing(1_000_000_000_000),
            tollgate.clock.wall(),
        )
        .await
        .expect("a budget");
    tollgate.in_force().await;
    let before = budget(&tollgate, tenant).await;
    assert!(before.is_known && before.used > 0, "{before:?}");
    tollgate.simulator.release_all();
    stream.rest().await;
    let after = budget(&tollgate, tenant).await;
    tollgate.shipped().await;
    let (rows, cost, _) = ledger_of(&tollgate, tenant, "ledger_full").await;
    assert_eq!((rows, after.used), (2, cost));
}
