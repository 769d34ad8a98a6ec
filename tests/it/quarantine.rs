//! Records that Postgres would not take, and gaps: operators see them, ship them again or say what they did about them.

use chrono::Utc;
use domain::ledger::JournalRecord;
use domain::people::Role;
use store::Store;
use store::ledger::QuarantinedRecord;
use test_support::console::Window;
use test_support::fleet::until_within;
use test_support::tollgate::{INSTANCE, Tollgate};

use crate::ledger::{rejection, settlement};

/// Puts a record aside, as a shipper does.
async fn put_aside(store: &Store, instance: &str, record: &JournalRecord, reason: &str) -> u64 {
    let previous_seq = store.ledger_mark(instance).await.expect("a mark");
    let bytes = serde_json::to_vec(record).expect("JSON");
    let record = QuarantinedRecord {
        previous_seq,
        seq: previous_seq + 1,
        bytes: &bytes,
        reason,
    };
    store.quarantine_record(instance, &record).await.expect("put aside");
    previous_seq + 1
}

async fn totals(tollgate: &Tollgate) -> (i64, i64, i64) {
    sqlx::query_as(
        "select (select count(*) from settlements), (select coalesce(sum(requests), 0)::bigint from settlement_rollups),
                (select coalesce(sum(refusals), 0)::bigint from rejection_rollups)",
    )
    .fetch_one(&mut tollgate.sql().await)
    .await
    .expect("totals")
}

async fn audited(tollgate: &Tollgate, action: &str) -> i64 {
    sqlx::query_scalar("select count(*) from audit_log where action = $1")
        .bind(action)
        .fetch_one(&mut tollgate.sql().await)
        .await
        .expect("a count")
}

#[tokio::test]
async fn a_record_that_goes_in_after_all_counts_once() {
    let tollgate = Tollgate::start().await;
    let store = &tollgate.running.store;
    let settled = JournalRecord::Settlement(Box::new(settlement(1)));
    let refused = JournalRecord::Rejection(Box::new(rejection(2)));
    let seqs = [
        put_aside(store, "gone", &settled, "an index was full").await,
        put_aside(store, "gone", &refused, "an index was full").await,
        // The same once more, as after a disk was put back.
        put_aside(store, "gone", &settled, "an index was full").await,
    ];
    let mut operator = Window::operator(&tollgate).await;
    let page = operator.visit("/status/quarantine").await;
    assert_eq!(page.forms("/console/quarantine/ship").len(), 3);
    assert!(page.content().contains("an index was full"), "{}", page.content());
    assert!(
        page.content().contains(&settlement(1).identity.id.to_string()),
        "the record is shown"
    );
    for _ in seqs {
        let form = operator
            .visit("/status/quarantine")
            .await
            .forms("/console/quarantine/ship")
            .remove(0);
        operator.send(&form).await;
    }
    assert_eq!(totals(&tollgate).await, (1, 1, rejection(2).refusal_count));
    assert_eq!(store.count_quarantined().await.expect("a count"), 0);
    let page = operator.visit("/status/quarantine").await;
    assert!(page.content().contains("in the ledger"), "{}", page.content());
    assert_eq!(audited(&tollgate, "quarantine.ship").await, 3);
    let again = tollgate
        .control()
        .ship_again(&tollgate.actor(), "gone", seqs[0], Utc::now())
        .await;
    assert!(again.expect_err("it is dealt with").to_string().contains("already"));
}

#[tokio::test]
async fn what_cannot_go_in_says_why_and_is_resolved_with_a_note() {
    let tollgate = Tollgate::start().await;
    let store = &tollgate.running.store;
    let mut bad = settlement(1);
    // More than a bigint holds.
    bad.usage.output_tokens = u64::MAX;
    put_aside(store, "gone", &JournalRecord::Settlement(Box::new(bad)), "too large").await;
    let mut operator = Window::operator(&tollgate).await;
    let form = operator
        .visit("/status/quarantine")
        .await
        .form("/console/quarantine/ship");
    let page = operator.send(&form).await;
    assert!(
        page.content().contains("Postgres still does not take it"),
        "{}",
        page.content()
    );
    assert_eq!(totals(&tollgate).await, (0, 0, 0));

    let form = operator.page.form("/console/quarantine/close");
    let page = operator.send(&form.clone().fill("note", "  ")).await;
    assert!(page.content().contains("what was done about it"), "{}", page.content());
    let page = operator.send(&form.fill("note", "booked by adjustment 17")).await;
    assert!(page.content().contains("booked by adjustment 17"), "{}", page.content());
    assert_eq!(store.count_quarantined().await.expect("a count"), 0);
    assert_eq!(audited(&tollgate, "quarantine.close").await, 1);
}

#[tokio::test]
async fn a_gap_is_told_by_the_gateway_until_somebody_has_dealt_with_it() {
    let tollgate = Tollgate::start().await;
    let store = &tollgate.running.store;
    for _ in 0..2 {
        let noted = store
            .note_ledger_gap(INSTANCE, 5, 9, "a segment is not there any more")
            .await;
        noted.expect("noted");
    }
    let bound = std::time::Duration::from_secs(30);
    until_within(bound, "readiness tells it", async || {
        tollgate
            .browser()
            .get("/readyz")
            .await
            .text()
            .contains("in quarantine or lost")
    })
    .await;
    let metrics = tollgate.browser().get("/metrics").await.text();
    assert!(metrics.contains("tollgate_journal_quarantined 1"), "{metrics}");
    let mut operator = Window::operator(&tollgate).await;
    let mut auditor = Window::person(&tollgate, Role::Auditor, None).await;
    let page = auditor.visit("/status/quarantine").await;
    assert!(page.content().contains("5 to 9"), "{}", page.content());
    assert!(page.forms("/console/quarantine/close").is_empty(), "auditors look on");

    let page = operator.visit("/status/quarantine").await;
    assert!(
        page.forms("/console/quarantine/ship").is_empty(),
        "there is nothing to ship"
    );
    let form = page.form("/console/quarantine/close");
    operator
        .send(&form.fill("note", "restored from the newer backup"))
        .await;
    until_within(bound, "it is over", async || {
        !tollgate
            .browser()
            .get("/readyz")
            .await
            .text()
            .contains("in quarantine or lost")
    })
    .await;
}
