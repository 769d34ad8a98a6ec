//! Starting and stopping with Postgres away, silent or restored, and stopping in the middle of work.

use std::time::{Duration, Instant};

use control::limits::NodeLimits;
use domain::ids::TenantId;
use domain::key_text::{KEY_RANDOM_BYTES, KeyText};
use server::wiring::Settings;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use test_support::http::Browser;
use test_support::tollgate::{MODEL, Options, Tollgate, chat_body};

/// What waits for something that must happen, at most.
const PATIENCE: Duration = Duration::from_secs(40);

/// Asks until the answer is as wanted.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so().await {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn with_wire() -> Options {
    Options {
        has_wire: true,
        ..Options::default()
    }
}

fn with_budget(tokens: u64) -> NodeLimits {
    NodeLimits {
        monthly_tokens: Some(tokens),
        ..NodeLimits::default()
    }
}

async fn count(sql: &mut PgConnection, text: &'static str, tenant: TenantId) -> i64 {
    sqlx::query_scalar(text)
        .bind(tenant.0)
        .fetch_one(sql)
        .await
        .expect("a count")
}

async fn readiness(tollgate: &Tollgate) -> String {
    tollgate.browser().get("/readyz").await.json()["degraded"].to_string()
}

/// The wire falls silent while Postgres owes the gateway an answer about `table`: between two statements it would only be
/// found out by the pool, which looks at a connection before it lends it.
async fn silence_inside_a_statement(tollgate: &Tollgate, table: &'static str) {
    let mut sql = tollgate.sql().await;
    let mut transaction = sql.begin().await.expect("a transaction");
    sqlx::query(AssertSqlSafe(format!("lock table {table} in access exclusive mode")))
        .execute(&mut *transaction)
        .await
        .expect("locked");
    until("the gateway waits for the table", async || {
        let waiting: i64 = sqlx::query_scalar(
            "select count(*) from pg_locks
             where not granted and relation = $1::regclass
                and database = (select oid from pg_database where datname = current_database())",
        )
        .bind(table)
        .fetch_one(&mut *transaction)
        .await
        .expect("a count");
        waiting > 0
    })
    .await;
    tollgate.wire().silence();
    transaction.rollback().await.expect("unlocked");
}

#[tokio::test]
async fn a_restart_without_postgres_serves_from_the_policy_kept_at_the_last_start() {
    let tollgate = Tollgate::start_with(with_wire()).await;
    let (tenant, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let (_, key_with_budget) = tollgate.named_tenant_with_key("Frugal", with_budget(1_000_000)).await;
    let unknown = KeyText::generate(&[3; KEY_RANDOM_BYTES]);

    // A start keeps what it has read, whether anything changes afterwards or not.
    let kept = tollgate.data_dir().join(gateway::KEPT_POLICY_FILE);
    let _ = std::fs::remove_file(&kept);
    let tollgate = tollgate.restart().await;
    until("the policy is kept", async || kept.exists()).await;

    tollgate.wire().cut();
    let tollgate = tollgate.restart().await;
    let answer = tollgate.chat(&key, "Hello.").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let answer = tollgate.chat(unknown.reveal(), "Hello.").await;
    assert_eq!(
        (answer.status.as_u16(), answer.code().as_str()),
        (503, "key_unverifiable")
    );
    let answer = tollgate.chat(&key_with_budget, "Hello.").await;
    assert_eq!(
        (answer.status.as_u16(), answer.code().as_str()),
        (503, "budget_unknown")
    );
    until("closed budgets are named", async || {
        readiness(&tollgate).await.contains("budgets: 1 ")
    })
    .await;
    let degraded = readiness(&tollgate).await;
    assert!(degraded.contains("policy: never read"), "{degraded}");
    assert!(
        !degraded.contains("os error") && !degraded.contains("127.0.0.1"),
        "{degraded}"
    );

    tollgate.wire().mend();
    until("the budget is read", async || {
        tollgate.chat(&key_with_budget, "Hello.").await.status == 200
    })
    .await;
    until("nothing is degraded", async || readiness(&tollgate).await == "[]").await;
    assert_eq!(tollgate.chat(unknown.reveal(), "Hello.").await.status, 401);
    tollgate.shipped().await;
    let rows = count(
        &mut tollgate.sql().await,
        "select count(*) from settlements where tenant_id = $1",
        tenant,
    )
    .await;
    assert_eq!(rows, 1);
}

#[tokio::test]
async fn a_database_that_turns_out_to_bill_in_another_zone_ends_the_process() {
    let tollgate = Tollgate::start_with(with_wire()).await;
    let kept = tollgate.data_dir().join(gateway::KEPT_POLICY_FILE);
    until("the policy is kept", async || kept.exists()).await;
    tollgate.wire().cut();
    let mut tollgate = tollgate
        .restart_with(|settings| Settings {
            time_zone: Some(chrono_tz::Asia::Tokyo),
            ..settings
        })
        .await;
    tollgate.wire().mend();
    let fault = tokio::time::timeout(PATIENCE, tollgate.running.fault())
        .await
        .expect("a process that disagrees does not go on");
    assert!(fault.to_string().contains("Asia/Tokyo"), "{fault}");
}

#[tokio::test]
async fn a_postgres_that_falls_silent_holds_nobody_up_and_is_found_again() {
    let tollgate = Tollgate::start_with(with_wire()).await;
    let (_, key) = tollgate.tenant_with_key(with_budget(1_000_000)).await;
    let unknown = KeyText::generate(&[3; KEY_RANDOM_BYTES]);
    assert_eq!(tollgate.chat(unknown.reveal(), "Hello.").await.status, 401);

    silence_inside_a_statement(&tollgate, "policy_version").await;
    until("an unknown key cannot be verified", async || {
        tollgate.chat(unknown.reveal(), "Hello.").await.status == 503
    })
    .await;
    assert_eq!(tollgate.chat(&key, "Hello.").await.status, 200);

    // Every connection that was open stays dead: they must have been given up.
    tollgate.wire().mend();
    until("unknown keys are unknown again", async || {
        tollgate.chat(unknown.reveal(), "Hello.").await.status == 401
    })
    .await;
    tollgate.shipped().await;
}

#[tokio::test]
async fn a_silent_postgres_keeps_nobody_from_stopping_nor_from_starting() {
    let tollgate = Tollgate::start_with(with_wire()).await;
    let (_, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let kept = tollgate.data_dir().join(gateway::KEPT_POLICY_FILE);
    let _ = std::fs::remove_file(&kept);
    let tollgate = tollgate.restart().await;
    until("the policy is kept", async || kept.exists()).await;

    silence_inside_a_statement(&tollgate, "instances").await;
    assert_eq!(tollgate.chat(&key, "Hello.").await.status, 200);
    let tollgate = tokio::time::timeout(PATIENCE, tollgate.restart())
        .await
        .expect("it stops and starts within bounds");
    assert_eq!(tollgate.chat(&key, "Hello.").await.status, 200);
    tokio::time::timeout(PATIENCE, tollgate.running.stop())
        .await
        .expect("it stops within bounds");
}

#[tokio::test]
async fn a_database_restored_to_an_earlier_version_is_believed() {
    let tollgate = Tollgate::start().await;
    let (tenant, key) = tollgate.tenant_with_key(NodeLimits::default()).await;
    let mut sql = tollgate.sql().await;
    let before: i64 = sqlx::query_scalar("select version from policy_version")
        .fetch_one(&mut sql)
        .await
        .expect("a version");
    let later = tollgate.issue(tenant).await;
    tollgate.in_force().await;
    assert_eq!(tollgate.chat(later.text.reveal(), "Hello.").await.status, 200);

    // What a restored backup looks like: the row and its version were never there.
    for text in [
        "delete from key_secrets where key_id = $1",
        "delete from keys where id = $1",
    ] {
        sqlx::query(text)
            .bind(later.row.id.0)
            .execute(&mut sql)
            .await
            .expect("deleted");
    }
    sqlx::query("update policy_version set version = $1")
        .bind(before)
        .execute(&mut sql)
        .await
        .expect("set back");
    until("the later key is unknown", async || {
        tollgate.chat(later.text.reveal(), "Hello.").await.status == 401
    })
    .await;
    assert_eq!(tollgate.chat(&key, "Hello.").await.status, 200);

    // And from there changes come through as ever.
    let issued = tollgate.issue(tenant).await;
    until("a new key is known", async || {
        tollgate.chat(issued.text.reveal(), "Hello.").await.status == 200
    })
    .await;
}

#[tokio::test]
async fn a_stop_without_grace_tells_callers_and_books_everything() {
    let tollgate = Tollgate::start().await.restart_with(|settings| Settings {
        grace: Duration::ZERO,
        ..settings
    });
    let tollgate = tollgate.await;
    let (tenant, key) = tollgate.tenant_with_key(with_budget(1_000_000)).await;
    let mut stream = tollgate
        .chat_stream(&key, "Hello. [[sim: tokens=50 hold-after-chunks=5]]")
        .await;
    assert!(stream.next().await.is_some());
    tollgate.simulator.wait_parked(1).await;
    let mut unknown = chat_body("Hello.");
    unknown["model"] = "no-such-model".into();
    for _ in 0..25 {
        let answer = tollgate
            .browser()
            .post_json("/v1/chat/completions", &key, &unknown)
            .await;
        assert_eq!(answer.code(), "model_not_found");
    }

    let Tollgate {
        database,
        running,
        simulator,
        ..
    } = tollgate;
    let reading = tokio::spawn(stream.rest());
    tokio::time::timeout(PATIENCE, running.stop())
        .await
        .expect("it stops within bounds");
    let text = reading.await.expect("no panic");
    assert!(text.contains("\"error\""), "the caller is told: {text}");

    let mut sql = database.connect().await;
    let (outcome, output_tokens): (String, i64) =
        sqlx::query_as("select outcome, output_tokens from settlements where tenant_id = $1")
            .bind(tenant.0)
            .fetch_one(&mut sql)
            .await
            .expect("one row of the stream, before the process ended");
    assert_eq!(outcome, "gateway_error");
    assert!(output_tokens > 0);
    let refused = count(
        &mut sql,
        "select sum(refusal_count)::bigint from rejections where tenant_id = $1",
        tenant,
    )
    .await;
    assert_eq!(refused, 25, "folded ones too");
    drop(simulator);
}

#[tokio::test]
async fn metrics_are_on_the_admin_address_only_and_tell_no_secrets() {
    let tollgate = Tollgate::start().await;
    let both = tollgate.browser().get("/metrics").await;
    assert_eq!(both.status, 200, "one address serves everything");
    let tollgate = tollgate
        .restart_with(|settings| Settings {
            admin_listen: Some("127.0.0.1:0".parse().expect("an address")),
            ..settings
        })
        .await;
    let (_, key) = tollgate.tenant_with_key(with_budget(1_000_000)).await;
    assert_eq!(tollgate.chat(&key, "Hello.").await.status, 200);
    let mut proxy = tollgate.browser();
    assert_eq!(proxy.get("/metrics").await.status, 404);
    assert_eq!(proxy.get("/readyz").await.status, 200);
    assert_eq!(proxy.get("/healthz").await.status, 200);

    let mut admin = Browser::new(&format!("http://{}", tollgate.running.admin_address));
    let answer = admin.get("/metrics").await;
    assert_eq!(answer.status, 200);
    let text = answer.text();
    let completed = format!("tollgate_requests_total{{outcome=\"completed\",model=\"{MODEL}\",priority=\"default\"}}");
    for expected in [
        completed.as_str(),
        "# HELP tollgate_requests_total",
        "tollgate_tokens_total{class=\"output\"",
        "tollgate_cost_nanos_total{",
        "tollgate_added_latency_seconds_bucket{le=\"0.0001\"}",
        "tollgate_first_byte_seconds_count",
        "tollgate_holds ",
        "tollgate_policy_version ",
        "tollgate_policy_age_seconds ",
        "tollgate_journal_depth ",
    ] {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
    assert!(!text.contains("sk-tg-") && !text.contains("credential-of"), "{text}");
    assert_eq!(admin.get("/readyz").await.status, 200);
}
