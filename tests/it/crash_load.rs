//! The program itself under load while it, Postgres or the disk is taken away: callers, provider and ledger keep books of
//! their own, and in the end they agree to the row.
//!
//! `TOLLGATE_TEST_LOAD_PER_SECOND` sets the load, and `TOLLGATE_TEST_LOAD_TIMES` makes each part longer.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use embedded_postgres::{Cluster, Halt, Throwaway};
use sqlx::PgConnection;
use test_support::cut::Wire;
use test_support::fleet::until_within;
use test_support::installation::{Installation, drained, metric};
use test_support::load::Load;
use test_support::postgres;
use tokio::task::{block_in_place, spawn_blocking};

/// Requests a second, where nothing else is said: what an unoptimised build answers on a machine that does other things.
const PER_SECOND: u32 = 100;
/// Requests that are answered between two blows, where nothing else is said.
const ROUND: u64 = 250;
/// What waits for something that must happen, at most.
const PATIENCE: Duration = Duration::from_secs(60);

fn setting(name: &str) -> Option<u32> {
    std::env::var(name).ok()?.parse().ok()
}

fn per_second() -> u32 {
    setting("TOLLGATE_TEST_LOAD_PER_SECOND").unwrap_or(PER_SECOND)
}

fn times() -> u32 {
    setting("TOLLGATE_TEST_LOAD_TIMES").unwrap_or(1)
}

/// Waits until so many more requests are answered, or as many times as many as was asked for.
async fn answered(load: &Load, more: u64) {
    for _ in 0..times() {
        load.answered(more).await;
    }
}

/// Requests that may be under way: those whose callers wait, and those whose callers have left within the last second.
fn under_way(load: &Load) -> u64 {
    load.under_way() + u64::from(per_second() / 5)
}

fn tell(what: &str, load: &Load) {
    let (answered, time) = load.so_far();
    let rate = answered as f64 / time.as_secs_f64();
    eprintln!(
        "{what}: {answered} answered in {:.1} s, {rate:.0} a second",
        time.as_secs_f64()
    );
}

fn host_and_port(url: &str) -> String {
    let url = url::Url::parse(url).expect("a URL");
    format!("{}:{}", url.host_str().expect("a host"), url.port().unwrap_or(5432))
}

fn through(url: &str, address: SocketAddr) -> String {
    url.replace(&host_and_port(url), &address.to_string())
}

async fn own_postgres() -> Throwaway {
    spawn_blocking(Throwaway::start)
        .await
        .expect("no panic")
        .expect("Postgres starts")
}

async fn deadlocks(sql: &mut PgConnection) -> i64 {
    sqlx::query_scalar("select deadlocks from pg_stat_database where datname = current_database()")
        .fetch_one(sql)
        .await
        .expect("a count")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_is_killed_twice_in_mid_load_loses_nothing() {
    let database = postgres::database().await;
    let mut installation = Installation::over(database.url()).await;
    // Equal refusals are folded in memory for a minute, which a killed process does not survive.
    installation.callers.tight_key = None;
    installation.callers.failing_model = None;
    let data_dir = tempfile::tempdir().expect("a directory");
    let (mut program, mut url) = installation.gateway(data_dir.path(), &[]).await;
    let load = Load::start(std::slice::from_ref(&url), installation.callers.clone(), per_second());
    let mut killed = 0;
    for _ in 0..2 {
        answered(&load, ROUND).await;
        killed += under_way(&load);
        program.kill().await;
        load.turn_to(&[]);
        (program, url) = installation.gateway(data_dir.path(), &[]).await;
        load.turn_to(std::slice::from_ref(&url));
    }
    answered(&load, ROUND).await;
    tell("killed twice", &load);
    let tally = load.stop().await;
    drained(&url).await;
    installation.agrees(&tally, killed).await;
    program.signal("TERM").await;
    assert!(program.ends().await.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_journalled_while_postgres_is_stopped_arrives_when_it_is_back() {
    let mut server = own_postgres().await;
    let installation = Installation::over(&server.cluster().url()).await;
    let data_dir = tempfile::tempdir().expect("a directory");
    // Segments of 1 MiB, at first.
    let room = (8 * times()).to_string();
    let variables = [("TOLLGATE_JOURNAL_MIB_MAX", room.as_str())];
    let (program, url) = installation.gateway(data_dir.path(), &variables).await;
    let load = Load::start(std::slice::from_ref(&url), installation.callers.clone(), per_second());
    answered(&load, ROUND).await;
    block_in_place(|| server.cluster_mut().halt(Halt::Fast));
    let stopped = std::time::Instant::now();
    answered(&load, 4 * ROUND).await;
    until_within(PATIENCE, "the journal has grown", async || {
        segments(data_dir.path()) > 3
    })
    .await;
    let away = stopped.elapsed().as_secs_f64();
    let (depth, bytes) = (
        metric(&url, "tollgate_journal_depth").await,
        metric(&url, "tollgate_journal_bytes").await,
    );
    let segments = segments(data_dir.path());
    let begun = std::time::Instant::now();
    block_in_place(|| server.cluster_mut().resume()).expect("Postgres starts again");
    until_within(PATIENCE, "the backlog is shipped", async || {
        metric(&url, "tollgate_journal_lag_seconds").await < 2.0
    })
    .await;
    let drained_in = begun.elapsed().as_secs_f64();
    eprintln!(
        "after {away:.0} s without Postgres, {depth} records, {bytes} bytes, {segments} segments were shipped in \
         {drained_in:.1} s under load"
    );
    tell("Postgres stopped", &load);
    let tally = load.stop().await;
    stop(program, &url).await;
    installation.agrees(&tally, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_that_crashes_in_the_middle_of_batches_has_each_once() {
    let mut server = own_postgres().await;
    let installation = Installation::over(&server.cluster().url()).await;
    let data_dir = tempfile::tempdir().expect("a directory");
    let (program, url) = installation.gateway(data_dir.path(), &[]).await;
    let load = Load::start(std::slice::from_ref(&url), installation.callers.clone(), per_second());
    for number in 0..4 {
        answered(&load, ROUND / 2).await;
        if number % 2 == 0 {
            kill_a_writer(&installation).await;
        } else {
            block_in_place(|| server.cluster_mut().halt(Halt::Immediate));
            answered(&load, ROUND / 5).await;
            block_in_place(|| server.cluster_mut().resume()).expect("Postgres starts again");
        }
    }
    answered(&load, ROUND / 2).await;
    tell("Postgres crashing", &load);
    let tally = load.stop().await;
    until_answers(server.cluster()).await;
    stop(program, &url).await;
    installation.agrees(&tally, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_what_is_new_and_recovers_by_itself() {
    let data_dir = tempfile::tempdir().expect("a directory");
    // A file system of its own takes rights; without them the journal's own bound stands for it.
    let disk = Disk::mount(data_dir.path(), "1200k");
    let variables = match disk {
        Some(_) => [("TOLLGATE_JOURNAL_MIB_MAX", "2")],
        None => [("TOLLGATE_JOURNAL_MIB_MAX", "1")],
    };
    let database = postgres::database().await;
    let wire = Wire::to(host_and_port(database.url())).await;
    let mut installation = Installation::over(database.url()).await;
    installation.gateways_reach(&through(database.url(), wire.address()));
    let (program, url) = installation.gateway(data_dir.path(), &variables).await;
    let load = Load::start(std::slice::from_ref(&url), installation.callers.clone(), per_second());
    answered(&load, ROUND / 2).await;
    wire.cut();
    until_within(PATIENCE, "requests are refused", async || {
        load.codes("ledger_full").await > 50
    })
    .await;
    wire.mend();
    let refused_at = load.codes("ledger_full").await;
    until_within(PATIENCE, "requests are served again", async || {
        let before = load.served().await;
        load.answered(20).await;
        load.served().await >= before + 10
    })
    .await;
    answered(&load, ROUND / 2).await;
    assert!(refused_at > 0);
    tell("disk full", &load);
    let tally = load.stop().await;
    stop(program, &url).await;
    installation.agrees(&tally, 0).await;
    drop(disk);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_is_told_to_stop_under_load_finishes_and_books_everything() {
    let database = postgres::database().await;
    let installation = Installation::over(database.url()).await;
    let data_dir = tempfile::tempdir().expect("a directory");
    let (program, url) = installation.gateway(data_dir.path(), &[]).await;
    let load = Load::start(std::slice::from_ref(&url), installation.callers.clone(), per_second());
    answered(&load, ROUND).await;
    program.signal("TERM").await;
    assert!(program.ends().await.success());
    tell("told to stop", &load);
    let tally = load.stop().await;
    assert_eq!(tally.broken(), 0, "answers under way are finished");
    installation.agrees(&tally, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_starts_without_postgres_serves_and_books_later() {
    let database = postgres::database().await;
    let wire = Wire::to(host_and_port(database.url())).await;
    let mut installation = Installation::over(database.url()).await;
    installation.gateways_reach(&through(database.url(), wire.address()));
    installation.callers.tight_key = None;
    installation.callers.failing_model = None;
    let data_dir = tempfile::tempdir().expect("a directory");
    let (program, url) = installation.gateway(data_dir.path(), &[]).await;
    let load = Load::start(std::slice::from_ref(&url), installation.callers.clone(), per_second());
    answered(&load, ROUND / 2).await;
    wire.cut();
    answered(&load, ROUND / 2).await;
    let killed = under_way(&load);
    program.kill().await;
    load.turn_to(&[]);
    let (program, url) = installation.gateway(data_dir.path(), &[]).await;
    load.turn_to(std::slice::from_ref(&url));
    answered(&load, ROUND / 2).await;
    wire.mend();
    answered(&load, ROUND / 2).await;
    tell("started without Postgres", &load);
    let tally = load.stop().await;
    stop(program, &url).await;
    installation.agrees(&tally, killed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gateways_that_book_the_same_tenants_are_in_each_others_way_nowhere() {
    let database = postgres::database().await;
    let installation = Installation::over(database.url()).await;
    let directories = [tempfile::tempdir(), tempfile::tempdir()].map(|directory| directory.expect("a directory"));
    let mut programs = Vec::new();
    let mut urls = Vec::new();
    for directory in &directories {
        let (program, url) = installation.gateway(directory.path(), &[]).await;
        programs.push(program);
        urls.push(url);
    }
    let load = Load::start(&urls, installation.callers.clone(), per_second());
    answered(&load, 3 * ROUND).await;
    tell("two gateways", &load);
    let tally = load.stop().await;
    for (program, url) in programs.into_iter().zip(&urls) {
        stop(program, url).await;
    }
    installation.agrees(&tally, 0).await;
    assert_eq!(deadlocks(&mut installation.sql().await).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_data_directory_that_is_put_back_after_another_was_used_books_all_it_has() {
    let database = postgres::database().await;
    let wire = Wire::to(host_and_port(database.url())).await;
    let mut installation = Installation::over(database.url()).await;
    installation.gateways_reach(&through(database.url(), wire.address()));
    installation.callers.tight_key = None;
    installation.callers.failing_model = None;
    let (lost, fresh) = (
        tempfile::tempdir().expect("a directory"),
        tempfile::tempdir().expect("a directory"),
    );
    let variables = [("TOLLGATE_INSTANCE", "one-name")];
    let (program, url) = installation.gateway(lost.path(), &variables).await;
    let load = Load::start(std::slice::from_ref(&url), installation.callers.clone(), per_second());
    answered(&load, ROUND / 2).await;
    // The machine is gone, with entries that Postgres has not heard of.
    wire.cut();
    answered(&load, ROUND / 2).await;
    let mut killed = under_way(&load);
    program.kill().await;
    load.turn_to(&[]);
    wire.mend();
    // Another takes its place and its name, and then the disk of the first is found.
    for directory in [fresh.path(), lost.path(), fresh.path()] {
        let (program, url) = installation.gateway(directory, &variables).await;
        load.turn_to(std::slice::from_ref(&url));
        answered(&load, ROUND / 2).await;
        killed += under_way(&load);
        program.kill().await;
        load.turn_to(&[]);
    }
    tell("put back", &load);
    let tally = load.stop().await;
    for directory in [lost.path(), fresh.path()] {
        let (program, url) = installation.gateway(directory, &variables).await;
        stop(program, &url).await;
    }
    installation.agrees(&tally, killed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gateways_that_were_given_one_name_by_mistake_lose_nothing() {
    let database = postgres::database().await;
    let installation = Installation::over(database.url()).await;
    let directories = [tempfile::tempdir(), tempfile::tempdir()].map(|directory| directory.expect("a directory"));
    let mut programs = Vec::new();
    let mut urls = Vec::new();
    for directory in &directories {
        let (program, url) = installation
            .gateway(directory.path(), &[("TOLLGATE_INSTANCE", "one-name")])
            .await;
        programs.push(program);
        urls.push(url);
    }
    let load = Load::start(&urls, installation.callers.clone(), per_second());
    answered(&load, ROUND).await;
    tell("one name", &load);
    let tally = load.stop().await;
    for (program, url) in programs.into_iter().zip(&urls) {
        stop(program, url).await;
    }
    // They are in each other's way: what one of them could not ship before it stopped, it does when it is alone.
    for directory in &directories {
        let (program, url) = installation
            .gateway(directory.path(), &[("TOLLGATE_INSTANCE", "one-name")])
            .await;
        stop(program, &url).await;
    }
    installation.agrees(&tally, 0).await;
}

/// Waits until the gateway has shipped everything, and stops it.
async fn stop(program: test_support::program::Program, url: &str) {
    drained(url).await;
    program.signal("TERM").await;
    assert!(program.ends().await.success());
}

fn segments(data_dir: &Path) -> usize {
    let files = std::fs::read_dir(data_dir.join("journal")).expect("a journal");
    files
        .flatten()
        .filter(|file| file.path().extension().is_some_and(|extension| extension == "journal"))
        .count()
}

/// Kills the server process that writes a batch, as soon as one does.
async fn kill_a_writer(installation: &Installation) {
    let mut sql = installation.sql().await;
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let writer: Option<i32> = sqlx::query_scalar(
            "select pid from pg_stat_activity
             where application_name = 'tollgate' and state <> 'idle' and pid <> pg_backend_pid()
                and (query like '%insert into settlements%' or query like '%ledger_progress%')",
        )
        .fetch_optional(&mut sql)
        .await
        .expect("a list");
        if let Some(writer) = writer {
            let killed = Command::new("kill").args(["-9", &writer.to_string()]).status();
            // It may have ended meanwhile.
            if killed.is_ok_and(|status| status.success()) {
                return;
            }
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        if tokio::time::Instant::now() > deadline {
            let all: Vec<String> = sqlx::query_scalar(
                "select concat_ws(' | ', pid, application_name, state, left(query, 100)) from pg_stat_activity",
            )
            .fetch_all(&mut sql)
            .await
            .expect("a list");
            panic!("nobody writes: {all:#?}");
        }
    }
}

/// Waits until connections are accepted again.
async fn until_answers(cluster: &Cluster) {
    use sqlx::Connection as _;
    let url = cluster.url();
    until_within(PATIENCE, "Postgres has recovered", async || {
        PgConnection::connect(&url).await.is_ok()
    })
    .await;
}

/// A small file system over a directory, gone when dropped.
struct Disk<'a>(&'a Path);

impl<'a> Disk<'a> {
    fn mount(directory: &'a Path, size: &str) -> Option<Self> {
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(directory)
            .stderr(std::process::Stdio::null())
            .status();
        mounted.is_ok_and(|status| status.success()).then_some(Self(directory))
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}
