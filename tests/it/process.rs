//! The program itself, as an operating system sees it: killed, told to stop, started again on what it left.

use std::path::Path;
use std::time::{Duration, Instant};

use control::limits::NodeLimits;
use serde_json::json;
use test_support::http::Browser;
use test_support::program::Program;
use test_support::tollgate::{Tollgate, chat_body};
use tokio::process::Command;

/// What waits for something that must happen, at most.
const PATIENCE: Duration = Duration::from_secs(60);

/// Processes whose working directory is the private Postgres of `data_dir`.
fn servers_over(data_dir: &Path) -> usize {
    let directory = data_dir.canonicalize().expect("a directory").join("postgres");
    let processes = std::fs::read_dir("/proc").expect("a list of processes");
    processes
        .flatten()
        .filter(|process| std::fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd == directory))
        .count()
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so().await {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn what_a_killed_gateway_held_is_charged_and_counts_in_the_budget() {
    let tollgate = Tollgate::start().await;
    let limits = NodeLimits {
        monthly_tokens: Some(1_000),
        ..NodeLimits::default()
    };
    let (tenant, key) = tollgate.tenant_with_key(limits).await;
    let Tollgate {
        database,
        running,
        simulator,
        ..
    } = tollgate;
    running.stop().await;

    let data_dir = tempfile::tempdir().expect("a directory");
    let secret_key = "07".repeat(32);
    let variables = [("DATABASE_URL", database.url()), ("TOLLGATE_SECRET_KEY", &secret_key)];
    let mut program = Program::start("serve", data_dir.path(), &variables);
    let address = program.says("Tollgate serves on ").await;
    let mut body = chat_body("Hello. [[sim: tokens=50 hold-after-chunks=5]]");
    body["stream"] = json!(true);
    body["max_tokens"] = json!(800);
    let mut stream = Browser::new(&address)
        .stream_json("/v1/chat/completions", &key, &body)
        .await;
    assert!(stream.next().await.is_some(), "it is under way");
    simulator.wait_parked(1).await;
    program.kill().await;
    drop(stream);

    let mut program = Program::start("serve", data_dir.path(), &variables);
    let address = program.says("Tollgate serves on ").await;
    let mut sql = database.connect().await;
    let (outcome, output_tokens): (String, i64) =
        sqlx::query_as("select outcome, output_tokens from settlements where tenant_id = $1")
            .bind(tenant.0)
            .fetch_one(&mut sql)
            .await
            .expect("its one row is shipped before anything is served");
    assert_eq!(outcome, "abandoned");
    assert!(output_tokens > 0);
    let browser = Browser::new(&address);
    let mut ask = chat_body("Hello. [[sim: tokens=5]]");
    ask["max_tokens"] = json!(1_000 - output_tokens);
    let answer = browser.post_json("/v1/chat/completions", &key, &ask).await;
    assert_eq!(answer.code(), "budget_exhausted", "{}", answer.text());
    ask["max_tokens"] = json!(50);
    let answer = browser.post_json("/v1/chat/completions", &key, &ask).await;
    assert_eq!(answer.status, 200, "the rest of the budget is open: {}", answer.text());

    program.signal("TERM").await;
    assert!(program.ends().await.success());
    let rows: i64 = sqlx::query_scalar("select count(*) from settlements where tenant_id = $1")
        .bind(tenant.0)
        .fetch_one(&mut sql)
        .await
        .expect("a count");
    assert_eq!(rows, 2, "SIGTERM ships what there is");
}

#[tokio::test]
async fn no_postgres_is_left_behind_whenever_the_program_is_told_to_stop() {
    let data_dir = tempfile::tempdir().expect("a directory");
    // While it starts.
    let program = Program::start("serve", data_dir.path(), &[]);
    until("Postgres is being started", async || servers_over(data_dir.path()) > 0).await;
    program.signal("INT").await;
    program.ends().await;
    assert_eq!(servers_over(data_dir.path()), 0);

    // While it serves, and twice, as the impatient do.
    let mut program = Program::start("serve", data_dir.path(), &[]);
    program.says("Console: ").await;
    program.signal("INT").await;
    program.says("Stopping").await;
    // It may have ended meanwhile.
    if let Some(id) = program.id() {
        let _ = Command::new("kill").args(["-s", "INT", &id.to_string()]).status().await;
    }
    program.ends().await;
    assert_eq!(servers_over(data_dir.path()), 0);
}

#[tokio::test]
async fn a_first_start_of_the_demo_that_was_killed_can_be_repeated() {
    let data_dir = tempfile::tempdir().expect("a directory");
    let mut program = Program::start("demo", data_dir.path(), &[]);
    program.says("First start").await;
    // Half of it is in the database.
    program.kill().await;

    let mut program = Program::start("demo", data_dir.path(), &[]);
    program.says("First start").await;
    until("the demo is made", async || data_dir.path().join("demo.json").exists()).await;
    program.signal("TERM").await;
    program.ends().await;
    assert_eq!(servers_over(data_dir.path()), 0);
    assert!(!data_dir.path().join("demo-unfinished").exists());
}

#[tokio::test]
async fn the_demo_leaves_a_database_alone_that_is_not_its_own() {
    let data_dir = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(data_dir.path().join("postgres")).expect("a directory");
    let mut program = Program::start("demo", data_dir.path(), &[]);
    let said = program.says("tollgate: ").await;
    assert!(said.contains("not the demo's"), "{said}");
    assert!(!program.ends().await.success());
    assert!(data_dir.path().join("postgres").exists());
}
