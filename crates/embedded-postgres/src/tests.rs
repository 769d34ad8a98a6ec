//! Each test starts a real Postgres over a directory of its own.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::account::Account;
use crate::{Cluster, Durability, Throwaway, running_url};

#[test]
fn data_written_before_a_stop_are_there_after_the_next_start() {
    let data_dir = tempfile::tempdir().expect("temporary directory");
    let postgres = start(data_dir.path());
    psql(
        &postgres,
        "create table written (words text); insert into written values ('still here')",
    );
    let first_process = postgres.process_id();
    postgres.stop();
    assert!(!is_running(first_process), "stop must leave no process");

    let postgres = start(data_dir.path());
    assert_eq!(psql(&postgres, "select words from written"), "still here");
    postgres.stop();
}

#[test]
fn a_server_left_by_a_killed_gateway_is_replaced_without_loss() {
    let data_dir = tempfile::tempdir().expect("temporary directory");
    let postgres = start(data_dir.path());
    psql(
        &postgres,
        "create table written (words text); insert into written values ('still here')",
    );
    let leftover_process = postgres.process_id();
    let leftover_url = postgres.url();
    // What kill -9 does: the gateway is gone, nobody stopped its server.
    std::mem::forget(postgres);

    let postgres = start(data_dir.path());
    assert_ne!(postgres.process_id(), leftover_process);
    assert!(
        leftover_url == postgres.url() || !accepts_connections(&leftover_url),
        "the leftover must be gone"
    );
    assert_eq!(psql(&postgres, "select words from written"), "still here");
    postgres.stop();
}

#[test]
fn a_stale_pid_file_that_names_a_stranger_does_not_matter() {
    let data_dir = tempfile::tempdir().expect("temporary directory");
    start(data_dir.path()).stop();
    // Postgres itself would give way to any living process of its own user.
    let mut stranger = Account::choose()
        .expect("a user")
        .command(Path::new("cat"))
        .stdin(Stdio::piped())
        .spawn()
        .expect("cat");
    let pid_file = format!("{}\n{}\n", stranger.id(), data_dir.path().join("postgres").display());
    std::fs::write(data_dir.path().join("postgres/postmaster.pid"), pid_file).expect("write");

    let postgres = start(data_dir.path());
    assert_eq!(psql(&postgres, "select 1"), "1");
    postgres.stop();
    assert!(
        stranger.try_wait().expect("its state").is_none(),
        "the stranger must not be touched"
    );
    stranger.kill().expect("kill");
    stranger.wait().expect("wait");
}

#[test]
fn a_server_that_runs_is_found_by_whoever_only_looks() {
    let found = |data_dir: &Path| running_url(data_dir).expect("an answer");
    let data_dir = tempfile::tempdir().expect("temporary directory");
    assert_eq!(found(&data_dir.path().join("nowhere")), None);
    assert_eq!(found(data_dir.path()), None);
    let postgres = start(data_dir.path());
    assert_eq!(found(data_dir.path()), Some(postgres.url()));
    // By another name of the directory, too.
    let link = data_dir.path().join("link");
    std::os::unix::fs::symlink(data_dir.path(), &link).expect("a link");
    assert_eq!(found(&link), Some(postgres.url()));
    let pid_path = data_dir.path().join("postgres/postmaster.pid");
    let pid_file = std::fs::read_to_string(&pid_path).expect("its file");
    postgres.stop();
    assert_eq!(found(data_dir.path()), None);
    // What a killed server leaves says where nobody listens any more; the process of this number is a stranger.
    let (_, rest) = pid_file.split_once('\n').expect("lines");
    std::fs::write(&pid_path, format!("{}\n{rest}", std::process::id())).expect("written");
    assert_eq!(found(data_dir.path()), None);
}

#[test]
fn an_interrupted_first_start_is_begun_anew() {
    let data_dir = tempfile::tempdir().expect("temporary directory");
    let partial = data_dir.path().join("postgres.partial");
    std::fs::create_dir(&partial).expect("create");
    std::fs::write(partial.join("PG_VERSION"), "15\n").expect("write");

    let postgres = start(data_dir.path());
    assert_eq!(psql(&postgres, "select 1"), "1");
    assert!(!partial.exists());
    postgres.stop();
}

#[test]
fn dropping_it_ends_the_server() {
    let data_dir = tempfile::tempdir().expect("temporary directory");
    let postgres = start(data_dir.path());
    let process = postgres.process_id();
    drop(postgres);
    assert!(!is_running(process));
}

#[test]
fn nobody_gets_in_without_the_password_and_it_is_not_readable_by_others() {
    use std::os::unix::fs::PermissionsExt;

    let data_dir = tempfile::tempdir().expect("temporary directory");
    let postgres = start(data_dir.path());
    let url = format!(
        "postgres://tollgate:guessed@127.0.0.1:{}/tollgate",
        port(&postgres.url())
    );
    let output = Command::new(postgres.program("psql"))
        .arg(url)
        .args(["-c", "select 1"])
        .output()
        .expect("psql");
    assert!(!output.status.success());

    let password = std::fs::metadata(data_dir.path().join("postgres-password")).expect("password file");
    assert_eq!(password.permissions().mode() & 0o777, 0o600);
    postgres.stop();
}

#[test]
fn a_throwaway_leaves_neither_process_nor_data() {
    let throwaway = Throwaway::start().expect("Postgres starts");
    let (process, directory) = (throwaway.cluster().process_id(), throwaway.cluster().directory.clone());
    assert_eq!(psql(throwaway.cluster(), "select 1"), "1");
    drop(throwaway);
    assert!(!is_running(process));
    assert!(!directory.exists());
}

#[test]
fn a_throwaway_ends_with_a_process_that_does_not_drop_it() {
    let mut throwaway = Throwaway::start().expect("Postgres starts");
    let (url, directory) = (throwaway.cluster().url(), throwaway.cluster().directory.clone());
    // All that the end of this process would do: the pipe closes.
    drop(throwaway.watch.stdin.take());
    throwaway.cluster.server.wait().expect("the server ends");
    throwaway.watch.wait().expect("the watch ends");
    assert!(!accepts_connections(&url));
    assert!(!directory.exists());
}

#[test]
fn data_of_an_absent_version_are_refused_by_name() {
    let data_dir = tempfile::tempdir().expect("temporary directory");
    std::fs::create_dir(data_dir.path().join("postgres")).expect("create");
    std::fs::write(data_dir.path().join("postgres/PG_VERSION"), "9\n").expect("write");

    let error = Cluster::start(data_dir.path(), Durability::Durable).expect_err("version 9 is not installed");
    assert!(error.to_string().contains("written by PostgreSQL 9"), "{error}");
}

fn start(data_dir: &Path) -> Cluster {
    Cluster::start(data_dir, Durability::Durable).expect("Postgres starts")
}

fn psql(postgres: &Cluster, sql: &str) -> String {
    let output = Command::new(postgres.program("psql"))
        .arg(postgres.url())
        .args([
            "--no-psqlrc",
            "--quiet",
            "--tuples-only",
            "--no-align",
            "--set=ON_ERROR_STOP=1",
            "-c",
            sql,
        ])
        .output()
        .expect("psql is installed beside the server");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn is_running(process: u32) -> bool {
    Command::new("kill")
        .args(["-0", &process.to_string()])
        .output()
        .expect("kill")
        .status
        .success()
}

fn accepts_connections(url: &str) -> bool {
    std::net::TcpStream::connect(("127.0.0.1", port(url))).is_ok()
}

fn port(url: &str) -> u16 {
    let (_, address) = url.rsplit_once(':').expect("a port");
    address.split('/').next().expect("a port").parse().expect("a port")
}
