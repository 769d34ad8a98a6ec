//! How long entries are kept: months are dropped whole, totals stay, and nobody is held up.

use chrono::{DateTime, Utc};
use control::retention::Tended;
use control::{Actor, ControlError};
use domain::ledger::Settlement;
use domain::people::Role;
use domain::periods::Span;
use sqlx::Connection as _;
use store::audit::AuditEntry;
use store::retention::Dropped;
use test_support::console::Window;
use test_support::tollgate::Tollgate;
use uuid::Uuid;

use crate::ledger::{Ledger, adjustment, rejection, settlement, without_nul};

fn instant(text: &str) -> DateTime<Utc> {
    text.parse().expect("an instant")
}

fn settled(number: u64, admitted_at: &str) -> Settlement {
    Settlement {
        admitted_at: instant(admitted_at),
        ..settlement(number)
    }
}

/// A ledger with partitions from September on, and an entry of each kind in September, October and November.
async fn three_months() -> Ledger {
    let ledger = Ledger::new().await;
    for month in ["2026-09-10T00:00:00Z", "2026-10-10T00:00:00Z"] {
        ledger
            .store
            .ensure_partitions(instant(month))
            .await
            .expect("partitions");
    }
    for (number, at) in [
        (0, "2026-09-30T23:59:59Z"),
        (1, "2026-10-01T00:00:00Z"),
        (2, "2026-11-03T10:00:00Z"),
    ] {
        ledger.append(settled(number, at));
        let mut refused = rejection(number);
        refused.refused_at = instant(at);
        ledger.append(refused);
    }
    ledger.drain().await;
    ledger
}

async fn adjust(ledger: &Ledger, admitted_at: &str) {
    let mut transaction = ledger.store.begin().await.expect("a transaction");
    let mut adjustment = adjustment(1);
    adjustment.admitted_at = instant(admitted_at);
    store::adjustments::insert_adjustment(&mut transaction, &adjustment)
        .await
        .expect("an adjustment");
    transaction.commit().await.expect("committed");
}

/// Requests, refusals and cost, as all roll-ups add up.
async fn rolled_up(ledger: &Ledger) -> (i64, i64, i64) {
    sqlx::query_as(
        "select (select sum(requests)::bigint from settlement_rollups),
                (select sum(refusals)::bigint from rejection_rollups),
                (select sum(cost_nanos)::bigint from settlement_rollups)",
    )
    .fetch_one(&mut ledger.database.connect().await)
    .await
    .expect("sums")
}

/// What the audit log is told, in short.
fn noted(dropped: Dropped<'_>) -> AuditEntry {
    AuditEntry {
        id: Uuid::now_v7(),
        at: Utc::now(),
        actor_id: None,
        actor: "test".to_owned(),
        action: "ledger.drop".to_owned(),
        subject: format!("{dropped:?}"),
        tenant_id: None,
        before: None,
        after: None,
        peer: None,
    }
}

async fn tend(ledger: &Ledger, from: &str) -> Tended {
    let tended = ledger.store.tend_ledger(Some(instant(from)), Utc::now(), &noted).await;
    tended.expect("a round")
}

#[tokio::test]
async fn months_that_are_over_are_dropped_whole_and_totals_stay() {
    let ledger = three_months().await;
    adjust(&ledger, "2026-09-12T00:00:00Z").await;
    let before = rolled_up(&ledger).await;
    assert_eq!(ledger.store.entries_kept_from().await.expect("an answer"), None);

    let tended = tend(&ledger, "2026-10-01T00:00:00Z").await;
    assert_eq!((tended.dropped, tended.is_unfinished), (2, false), "{tended:?}");
    assert_eq!(ledger.count("settlements").await, 2);
    assert_eq!(ledger.count("rejections").await, 2);
    assert_eq!(ledger.count("adjustments").await, 1);
    assert_eq!(rolled_up(&ledger).await, before);
    let kept_from = ledger.store.entries_kept_from().await.expect("an answer");
    assert_eq!(kept_from, Some(instant("2026-10-01T00:00:00Z")));
    let kept = Span {
        start: instant("2026-10-01T00:00:00Z"),
        end: instant("2026-12-01T00:00:00Z"),
    };
    assert_eq!(ledger.store.rollup_differences(kept).await.expect("roll-ups"), []);

    // Again, and with less to keep later: what is gone stays gone and told.
    assert_eq!(tend(&ledger, "2026-10-01T00:00:00Z").await, Tended::default());
    assert_eq!(tend(&ledger, "2026-08-01T00:00:00Z").await, Tended::default());
    let kept_from = ledger.store.entries_kept_from().await.expect("an answer");
    assert_eq!(kept_from, Some(instant("2026-10-01T00:00:00Z")));
}

#[tokio::test]
async fn an_entry_that_comes_late_for_a_dropped_month_counts_once_and_goes_in_its_turn() {
    let ledger = three_months().await;
    tend(&ledger, "2026-10-01T00:00:00Z").await;
    let (requests, refusals, cost) = rolled_up(&ledger).await;
    let late = settled(7, "2026-09-20T12:00:00Z");
    let late_cost = late.cost_nanos.0;
    ledger.append(late.clone());
    ledger.append(late.clone());
    ledger.drain().await;
    assert_eq!(ledger.count("settlements_default").await, 1);
    let found = ledger.store.find_settlement(late.identity.id).await.expect("an answer");
    assert_eq!(found.expect("it is there").entry, without_nul(late));
    let wanted = (requests + 1, refusals, cost + late_cost);
    assert_eq!(rolled_up(&ledger).await, wanted);

    let tended = tend(&ledger, "2026-10-01T00:00:00Z").await;
    assert_eq!((tended.deleted, tended.is_unfinished), (1, false));
    assert_eq!(ledger.count("settlements_default").await, 0);
    assert_eq!(rolled_up(&ledger).await, wanted);
}

#[tokio::test]
async fn whoever_reads_is_waited_for_a_moment_and_the_next_round_goes_on() {
    let ledger = three_months().await;
    let mut reader = ledger.database.connect().await;
    let mut reading = reader.begin().await.expect("a transaction");
    let rows: i64 = sqlx::query_scalar("select count(*) from settlements")
        .fetch_one(&mut *reading)
        .await
        .expect("a count");
    assert_eq!(rows, 3);
    let tended = tend(&ledger, "2026-10-01T00:00:00Z").await;
    assert!(tended.is_unfinished, "{tended:?}");
    assert_eq!(tended.dropped, 1, "nobody reads the other table");
    // Shipping goes on meanwhile.
    ledger.append(settled(8, "2026-11-04T00:00:00Z"));
    ledger.drain().await;
    reading.commit().await.expect("read");
    let tended = tend(&ledger, "2026-10-01T00:00:00Z").await;
    assert_eq!((tended.dropped, tended.is_unfinished), (1, false));
    assert_eq!(ledger.count("settlements").await, 3);
}

#[tokio::test]
async fn gateways_that_do_it_at_the_same_time_are_no_trouble_to_each_other() {
    let ledger = three_months().await;
    ledger.append(settled(9, "2026-05-03T00:00:00Z"));
    ledger.drain().await;
    let from = Some(instant("2026-10-01T00:00:00Z"));
    let rounds = (0..4).map(|_| ledger.store.tend_ledger(from, Utc::now(), &noted));
    let tended = futures_util::future::join_all(rounds).await;
    assert!(tended.iter().all(Result::is_ok), "{tended:?}");
    tend(&ledger, "2026-10-01T00:00:00Z").await;
    // Settlements and rejections of September, and an entry of May that lay in the default partition: each was noted once.
    let notes: Vec<String> =
        sqlx::query_scalar("select subject from audit_log where action = 'ledger.drop' order by 1")
            .fetch_all(&mut ledger.database.connect().await)
            .await
            .expect("entries");
    assert_eq!(
        notes,
        [
            "Entries { table: \"settlements\", count: 1 }",
            "Partition(\"rejections_2026_09\")",
            "Partition(\"settlements_2026_09\")"
        ]
    );
    assert_eq!(ledger.count("settlements").await, 2);
    assert_eq!(ledger.count("rejections").await, 2);
}

#[tokio::test]
async fn a_month_that_was_detached_and_not_dropped_is_dropped_by_the_next_round() {
    let ledger = three_months().await;
    sqlx::query("alter table settlements detach partition settlements_2026_09")
        .execute(&mut ledger.database.connect().await)
        .await
        .expect("detached");
    assert_eq!(tend(&ledger, "2026-10-01T00:00:00Z").await.dropped, 2);
    assert_eq!(
        ledger
            .count("pg_class where relname in ('settlements_2026_09', 'rejections_2026_09')")
            .await,
        0
    );
}

#[tokio::test]
async fn stray_entries_get_partitions_of_their_own() {
    let ledger = Ledger::new().await;
    let stray = settled(1, "2026-05-03T00:00:00Z");
    ledger.append(stray.clone());
    ledger.append(settled(2, "2026-05-31T23:59:59Z"));
    ledger.append(settled(3, "2026-07-01T00:00:00Z"));
    ledger.drain().await;
    assert_eq!(ledger.count("settlements_default").await, 3);

    let tended = ledger
        .store
        .tend_ledger(None, Utc::now(), &noted)
        .await
        .expect("a round");
    assert_eq!((tended.placed, tended.is_unfinished), (3, false), "{tended:?}");
    assert_eq!(ledger.count("settlements_default").await, 0);
    assert_eq!(ledger.count("settlements_2026_05").await, 2);
    assert_eq!(ledger.count("settlements_2026_07").await, 1);
    let found = ledger
        .store
        .find_settlement(stray.identity.id)
        .await
        .expect("an answer");
    assert_eq!(found.expect("it is there").entry, without_nul(stray.clone()));
    // They are as good as any: shipped again, nothing counts twice, and they are dropped like the others.
    ledger.append(stray);
    ledger.append(settled(4, "2026-05-04T00:00:00Z"));
    ledger.drain().await;
    assert_eq!(ledger.count("settlements_2026_05").await, 3);
    assert_eq!(rolled_up_requests(&ledger).await, 4);
    let tended = tend(&ledger, "2026-06-01T00:00:00Z").await;
    assert_eq!(tended.dropped, 1);
    assert_eq!(ledger.count("settlements").await, 1);
    assert_eq!(rolled_up_requests(&ledger).await, 4);
}

async fn rolled_up_requests(ledger: &Ledger) -> i64 {
    sqlx::query_scalar("select sum(requests)::bigint from settlement_rollups")
        .fetch_one(&mut ledger.database.connect().await)
        .await
        .expect("a sum")
}

#[tokio::test]
async fn operators_decide_how_long_entries_are_kept_and_pages_say_so() {
    let tollgate = Tollgate::start().await;
    let mut operator = Window::operator(&tollgate).await;
    let form = operator.visit("/settings").await.form("/console/settings/retention");
    let page = operator.send(&form.fill("months", "0")).await;
    assert!(
        page.content().contains("Between 1 and 1200 months"),
        "{}",
        page.content()
    );
    let form = operator.visit("/settings").await.form("/console/settings/retention");
    let page = operator.send(&form.fill("months", "2")).await;
    assert!(page.content().contains("they do not come back"), "{}", page.content());
    assert!(page.content().contains("All entries are kept."), "nothing was saved");
    let form = page.form("/console/settings/retention");
    assert_eq!(form.value("months"), "2", "what was typed is still there");
    let page = operator.send(&form.tick("confirmed", "yes")).await;
    assert!(page.content().contains("2 full months"), "{}", page.content());

    // A month that was over long ago.
    let old = instant("2025-01-10T00:00:00Z");
    tollgate.running.store.ensure_partitions(old).await.expect("partitions");
    let before = operator.visit("/ledger").await.content();
    assert!(!before.contains("no longer kept"));
    tollgate.control().tend_ledger(Utc::now()).await.expect("a round");
    let page = operator.visit("/ledger").await.content();
    assert!(page.contains("no longer kept"), "{page}");
    let kept = tollgate
        .control()
        .retention(&tollgate.actor())
        .await
        .expect("retention");
    assert_eq!(kept.months, Some(2));
    let from = kept.entries_from.expect("something was dropped");
    assert!(from < Utc::now() - chrono::Duration::days(58), "{from}");
    assert_eq!(audited(&tollgate, "settings.retention").await, 1);
    assert!(audited(&tollgate, "ledger.drop").await > 0);

    let mut auditor = Window::person(&tollgate, Role::Auditor, None).await;
    assert!(auditor.visit("/settings").await.content().contains("2 full months"));
    assert!(auditor.page.forms("/console/settings/retention").is_empty());
    let refused = tollgate
        .control()
        .set_retention(&stranger(), kept.version, None, true, Utc::now())
        .await;
    assert!(matches!(refused, Err(ControlError::Forbidden)), "{refused:?}");
}

async fn audited(tollgate: &Tollgate, action: &str) -> i64 {
    sqlx::query_scalar("select count(*) from audit_log where action = $1")
        .bind(action)
        .fetch_one(&mut tollgate.sql().await)
        .await
        .expect("a count")
}

fn stranger() -> Actor {
    use control::actor::PersonActor;
    use domain::ids::PersonId;
    Actor::Person(PersonActor {
        id: PersonId(uuid::Uuid::from_u128(1)),
        email: "a@example.com".to_owned(),
        name: "A".to_owned(),
        role: Role::Auditor,
        tenant_id: None,
        peer: None,
    })
}
