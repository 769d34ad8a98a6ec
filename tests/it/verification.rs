//! `tollgate ledger verify`: it finds nothing where all is well, and whatever is not; told by the program's exit code.

use bytes::Bytes;
use chrono::Utc;
use control::adjustments::{AdjustmentDraft, Booking, CorrectionDraft, When};
use control::limits::NodeLimits;
use domain::adjustments::Figures;
use domain::ids::{AdjustmentId, TenantId};
use domain::limits::{Class, Dimension, Mode, Scope, Target};
use domain::money::Nanos;
use domain::periods::Period;
use http::Method;
use store::entries::EntryFilter;
use test_support::clock::zone_at_noon;
use test_support::fleet::until;
use test_support::program::{Printed, run};
use test_support::tollgate::{CHAT_PATH, Options, Tollgate, chat_body, limit};
use uuid::Uuid;

/// Ends with everything agreeing, with a difference, with a failure.
const AGREES: Option<i32> = Some(0);
const DIFFERS: Option<i32> = Some(1);
const FAILED: Option<i32> = Some(2);

async fn verify(tollgate: &Tollgate, more: &[&str]) -> Printed {
    verify_at(tollgate.database.url(), more).await
}

async fn verify_at(url: &str, more: &[&str]) -> Printed {
    let data_dir = tempfile::tempdir().expect("a directory");
    let arguments: Vec<&str> = ["ledger", "verify"].iter().chain(more).copied().collect();
    run(&arguments, data_dir.path(), &[("DATABASE_URL", url)]).await
}

async fn sql(tollgate: &Tollgate, statement: &str) {
    let done = sqlx::query(sqlx::AssertSqlSafe(statement.to_owned()))
        .execute(&mut tollgate.sql().await)
        .await
        .unwrap_or_else(|error| panic!("{statement}: {error}"));
    assert!(done.rows_affected() > 0, "{statement}");
}

/// One of everything that the ledger takes: answers, whole and streamed, with tags and for end users, failures, refusals,
/// rehearsed refusals, adjustments; under budgets on nodes and classes of every period.
async fn busy() -> (Tollgate, TenantId) {
    let options = Options {
        time_zone: Some(zone_at_noon()),
        ..Options::default()
    };
    let tollgate = Tollgate::start_with(options).await;
    let limits = NodeLimits {
        monthly_cost: Some(Nanos::from_units(5)),
        monthly_tokens: Some(1_000_000),
        ..NodeLimits::default()
    };
    let (tenant, key) = tollgate.tenant_with_key(limits).await;
    for (class, period) in [(Class::Key, Period::Day), (Class::EndUser, Period::Hour)] {
        let mut budget = limit(Dimension::BudgetTokens, 1_000_000);
        budget.period = period;
        tollgate.set_limit(Target::OfTenant(tenant, class), 0, &budget).await;
    }
    let mut weekly = limit(Dimension::BudgetCost, 5_000_000_000);
    weekly.period = Period::Week;
    tollgate.set_limit(Target::Node(Scope::Global), 0, &weekly).await;
    let mut rehearsed = limit(Dimension::Requests, 1);
    rehearsed.mode = Mode::Rehearse;
    tollgate.set_limit(Target::Node(Scope::Global), 1, &rehearsed).await;

    for number in 0..3 {
        let mut body = chat_body("Hello. [[sim: tokens=30]]");
        body["user"] = format!("end user {number}").into();
        let body = Bytes::from(body.to_string());
        let bearer = format!("Bearer {key}");
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
            ("x-tollgate-tags", "project=search,team=core"),
        ];
        // The budget of an end user whom nobody knew of is read first.
        until("it is answered", async || {
            let mut browser = tollgate.browser();
            let answer = browser.send(Method::POST, CHAT_PATH, &headers, body.clone()).await;
            answer.status == 200
        })
        .await;
    }
    assert_eq!(tollgate.chat_stream(&key, "Hello.").await.status, 200);
    assert_ne!(tollgate.chat(&key, "Hello. [[sim: status=500]]").await.status, 200);
    let narrow = NodeLimits {
        requests_per_minute: Some(1),
        ..NodeLimits::default()
    };
    let (_, narrow) = tollgate.named_tenant_with_key("Narrow", narrow).await;
    assert_eq!(tollgate.chat(&narrow, "Hello.").await.status, 200);
    assert_eq!(tollgate.chat(&narrow, "Hello.").await.status, 429);
    tollgate.shipped().await;

    let (control, actor) = (tollgate.control(), tollgate.actor());
    let booking = |number| Booking {
        id: AdjustmentId(Uuid::from_u128(number)),
        reason: "test".into(),
        reference: String::new(),
    };
    let everything = EntryFilter::default();
    let settled = tollgate.running.store.settlements(&everything, None, 10).await;
    let settled = settled.expect("entries").entries;
    let dear = settled.iter().find(|named| named.entry.cost_nanos > Nanos(10_000));
    let dear = dear.expect("a dear one").entry.identity.id;
    let by = Figures {
        cost_nanos: Nanos(-10_000),
        ..Figures::default()
    };
    let (part, why) = (CorrectionDraft::By(by), booking(1));
    let corrected = control.correct_request(&actor, dear, 0, &part, &why, Utc::now()).await;
    corrected.expect("a correction");
    for (number, at) in [(2, Utc::now()), (3, Utc::now() - chrono::Duration::days(70))] {
        let draft = AdjustmentDraft {
            tenant_id: tenant,
            user: None,
            key_id: None,
            model: None,
            when: When::At(at),
            figures: by,
        };
        let booked = control
            .book_adjustment(&actor, &draft, &booking(number), Utc::now())
            .await;
        booked.expect("an adjustment");
    }
    (tollgate, tenant)
}

#[tokio::test]
async fn a_ledger_that_adds_up_is_found_to() {
    let (tollgate, _) = busy().await;
    let printed = verify(&tollgate, &[]).await;
    assert_eq!(printed.code, AGREES, "{printed:?}");
    assert!(printed.stdout.contains("Everything agrees."), "{printed:?}");
    assert!(
        printed
            .stdout
            .contains("the journal of test-gateway is contained up to record")
    );
    // Two months apart, and budgets of both tenants, of keys, end users and the whole.
    let lines: Vec<&str> = printed.stderr.lines().collect();
    assert_eq!(
        lines.iter().filter(|line| line.contains("days with entries")).count(),
        2,
        "{lines:?}"
    );
    let budgets = lines
        .iter()
        .find_map(|line| line.strip_prefix("Budgets: "))
        .expect("a line");
    let checked: u64 = budgets
        .split(' ')
        .next()
        .and_then(|count| count.parse().ok())
        .expect("a count");
    assert!(checked >= 7, "{budgets}");
}

#[tokio::test]
async fn a_damaged_sum_of_any_kind_is_found_and_made_anew() {
    let (tollgate, tenant) = busy().await;
    for (damage, table, column) in [
        (
            "update settlement_rollups set output_tokens = output_tokens + 1 where requests > 0",
            "settlement_rollups",
            "output_tokens stored",
        ),
        (
            "update settlement_rollups set adjusted_cost_nanos = 0 where adjustments > 0",
            "settlement_rollups",
            "adjusted_cost_nanos stored 0, from entries -",
        ),
        ("delete from rehearsal_rollups", "rehearsal_rollups", "missing, from entries requests"),
        ("update tag_rollups set cost_nanos = 1", "tag_rollups", "tag_name=project"),
        ("delete from rejection_rollups", "rejection_rollups", "missing, from entries refusals 1"),
        (
            "insert into rejection_rollups (bucket_start, tenant_id, user_id, key_id, model, priority, code, scope_kind,
                dimension, refusals)
             select bucket_start, tenant_id, 'nobody', key_id, model, priority, code, scope_kind, dimension, 4
             from rejection_rollups
             limit 1",
            "rejection_rollups",
            "user_id=nobody",
        ),
        (
            "update settlement_month_rollups set cost_nanos = cost_nanos + 1",
            "settlement_month_rollups",
            "cost_nanos stored",
        ),
        ("delete from settlement_day_rollups", "settlement_day_rollups", "missing"),
        (
            "update rejection_month_rollups set refusals = 7",
            "rejection_month_rollups",
            "refusals stored 7, from entries 1",
        ),
        (
            "update rejection_day_rollups set refusals = 0",
            "rejection_day_rollups",
            "refusals stored 0, from entries 1",
        ),
    ] {
        sql(&tollgate, damage).await;
        let printed = verify(&tollgate, &[]).await;
        assert_eq!(printed.code, DIFFERS, "{damage}: {printed:?}");
        let line = |line: &&str| line.starts_with(table) && line.contains(column);
        assert!(printed.stdout.lines().any(|found| line(&found)), "{damage}: {printed:?}");
        if table == "settlement_rollups" {
            let budget = format!("of tenant:{tenant}");
            assert!(printed.stdout.lines().any(|line| line.contains(&budget)), "{printed:?}");
        }
        let printed = verify(&tollgate, &["--repair"]).await;
        assert_eq!(printed.code, AGREES, "{damage}: {printed:?}");
        assert!(printed.stdout.contains(&format!("made anew: {table}")), "{printed:?}");
        let (actor, from, rows): (String, String, i32) = sqlx::query_as(
            "select actor, peer, (after->>'differing_rows')::int from audit_log
             where action = 'ledger.repair' order by at desc, id desc limit 1",
        )
        .fetch_one(&mut tollgate.sql().await)
        .await
        .expect("it was noted");
        assert_eq!(actor, "command line", "{damage}");
        assert!(from.contains('@') && rows > 0, "{damage}: {from}, {rows} rows");
        assert_eq!(verify(&tollgate, &[]).await.code, AGREES, "{damage}");
    }
}

#[tokio::test]
async fn a_damaged_entry_is_found_in_every_sum_that_has_it() {
    let (tollgate, tenant) = busy().await;
    for (damage, mend, says) in [
        (
            "update settlements set cost_nanos = cost_nanos + 1 where outcome = 'completed'",
            "update settlements set cost_nanos = cost_nanos - 1 where outcome = 'completed'",
            vec![
                "settlement ".to_owned(),
                "settlement_rollups".to_owned(),
                format!("budget_cost of tenant:{tenant}"),
                "budget_cost of global".to_owned(),
            ],
        ),
        (
            "update settlements set output_tokens = output_tokens + 1 where user_id = 'end user 1'",
            "update settlements set output_tokens = output_tokens - 1 where user_id = 'end user 1'",
            vec![
                format!("budget_tokens of user:{tenant}/end user 1"),
                "budget_tokens of key:".to_owned(),
                "tag_rollups".to_owned(),
            ],
        ),
    ] {
        sql(&tollgate, damage).await;
        let printed = verify(&tollgate, &[]).await;
        assert_eq!(printed.code, DIFFERS, "{damage}: {printed:?}");
        for says in says {
            let is_said = printed.stdout.lines().any(|line| line.starts_with(&says));
            assert!(is_said, "{damage}: {says}: {printed:?}");
        }
        sql(&tollgate, mend).await;
        assert_eq!(verify(&tollgate, &[]).await.code, AGREES, "{mend}");
    }
}

#[tokio::test]
async fn what_is_checked_and_printed_has_bounds() {
    let (tollgate, _) = busy().await;
    sql(&tollgate, "delete from tag_rollups").await;
    let all = verify(&tollgate, &[]).await;
    let differences = all
        .stdout
        .lines()
        .filter(|line| line.starts_with("tag_rollups"))
        .count();
    assert!(differences > 1, "{all:?}");
    let printed = verify(&tollgate, &["--differences", "1"]).await;
    assert_eq!(printed.code, DIFFERS);
    assert!(
        printed.stdout.contains(&format!("and {} more", differences - 1)),
        "{printed:?}"
    );
    assert!(
        printed.stdout.contains(&format!("{differences} differences.")),
        "{printed:?}"
    );
    for outside in [["--from", "2100-01-01"], ["--until", "2020-01-01"]] {
        assert_eq!(verify(&tollgate, &outside).await.code, AGREES, "{outside:?}");
    }
    let today = Utc::now().with_timezone(&zone_at_noon()).date_naive().to_string();
    assert_eq!(verify(&tollgate, &["--from", &today]).await.code, DIFFERS);
    // Records that nobody could write are told of, and are no difference.
    verify(&tollgate, &["--repair"]).await;
    sql(
        &tollgate,
        "insert into ledger_quarantine (instance, seq, reason, quarantined_at) values ('x', 1, 'test', now())",
    )
    .await;
    let printed = verify(&tollgate, &[]).await;
    assert_eq!(printed.code, AGREES);
    assert!(
        printed.stdout.contains("1 records of journals are in quarantine"),
        "{printed:?}"
    );
}

#[tokio::test]
async fn a_check_that_cannot_be_done_is_not_taken_for_a_good_one() {
    let nowhere = verify_at("postgres://nobody@127.0.0.1:1/nothing", &[]).await;
    assert_eq!(nowhere.code, FAILED, "{nowhere:?}");
    let empty = test_support::postgres::database().await;
    let printed = verify_at(empty.url(), &[]).await;
    assert_eq!(printed.code, FAILED, "{printed:?}");
    assert!(
        printed.stderr.contains("no settings yet") || printed.stderr.contains("tollgate migrate"),
        "{printed:?}"
    );
    let wrong = verify_at(empty.url(), &["--from", "yesterday"]).await;
    assert_eq!(wrong.code, FAILED, "{wrong:?}");
}
