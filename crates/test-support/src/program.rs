//! The program itself as a process of its own, as an operating system sees it.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// What waits for something that must happen, at most.
const PATIENCE: Duration = Duration::from_secs(60);

/// Names a file to which the log of every program is written.
const LOG_VARIABLE: &str = "TOLLGATE_TEST_LOG";

/// A running `tollgate`, killed when dropped.
#[derive(Debug)]
pub struct Program {
    child: Child,
    lines: mpsc::UnboundedReceiver<String>,
}

impl Program {
    /// Starts it over `data_dir`, with these variables.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(command: &str, data_dir: &Path, variables: &[(&str, &str)]) -> Self {
        let mut child = Command::new(path())
            .arg(command)
            .env_remove("DATABASE_URL")
            .env_remove("REDIS_URL")
            .env("TOLLGATE_DATA_DIR", data_dir)
            .env("TOLLGATE_LISTEN", "127.0.0.1:0")
            .env(
                "RUST_LOG",
                if std::env::var_os(LOG_VARIABLE).is_some() {
                    "warn"
                } else {
                    "off"
                },
            )
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the program starts");
        let stderr = child.stderr.take().expect("it was asked for");
        let (said, lines) = mpsc::unbounded_channel();
        tokio::spawn(listen(BufReader::new(stderr).lines(), said));
        Self { child, lines }
    }

    /// Runs it with these arguments and variables to its end: its status, and all that it prints.
    ///
    /// # Panics
    /// When it does not start or end.
    pub async fn run(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
        let running = Command::new(path())
            .args(arguments)
            .env_remove("DATABASE_URL")
            .env("RUST_LOG", "off")
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let ended = timeout(PATIENCE, running).await;
        ended.expect("it ends within bounds").expect("it runs")
    }

    /// What follows `beginning` in the first line that begins with it.
    ///
    /// # Panics
    /// When it never says so.
    pub async fn says(&mut self, beginning: &str) -> String {
        let mut said = Vec::new();
        let found = timeout(PATIENCE, async {
            while let Some(line) = self.lines.recv().await {
                if let Some(rest) = line.strip_prefix(beginning) {
                    return Some(rest.to_owned());
                }
                said.push(line);
            }
            None
        })
        .await;
        match found {
            Ok(Some(rest)) => rest,
            _ => panic!("it never said {beginning:?}, but {said:#?}"),
        }
    }

    /// Sends it a signal, by name.
    ///
    /// # Panics
    /// When it has ended.
    pub async fn signal(&self, name: &str) {
        let id = self.child.id().expect("it runs").to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status().await;
        assert!(sent.expect("kill runs").success());
    }

    /// Its process id, while it runs.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Kills it, as a crash does.
    ///
    /// # Panics
    /// When that fails.
    pub async fn kill(mut self) {
        self.child.kill().await.expect("killed");
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it does not come.
    pub async fn ends(mut self) -> ExitStatus {
        timeout(PATIENCE, self.child.wait())
            .await
            .expect("it ends within bounds")
            .expect("a status")
    }
}

/// What a command that ends by itself leaves.
#[derive(Debug)]
pub struct Printed {
    /// Its exit code; absent when a signal ended it.
    pub code: Option<i32>,
    /// What it printed.
    pub stdout: String,
    /// What it said beside.
    pub stderr: String,
}

/// Runs the program with these arguments and variables to its end.
///
/// # Panics
/// When it does not end.
pub async fn run(arguments: &[&str], data_dir: &Path, variables: &[(&str, &str)]) -> Printed {
    let running = Command::new(path())
        .args(arguments)
        .env_remove("DATABASE_URL")
        .env_remove("REDIS_URL")
        .env("TOLLGATE_DATA_DIR", data_dir)
        .env("RUST_LOG", "off")
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = timeout(PATIENCE, running).await.expect("it ends within bounds");
    let output = output.expect("the program starts");
    Printed {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Reads all the time, so that a program with much to say is not held up. `TOLLGATE_TEST_LOG` names a file for all of it.
async fn listen(mut lines: Lines<BufReader<ChildStderr>>, said: mpsc::UnboundedSender<String>) {
    let mut log = std::env::var_os(LOG_VARIABLE).and_then(|path| {
        let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
        file.ok()
    });
    while let Ok(Some(line)) = lines.next_line().await {
        if let Some(log) = &mut log {
            let _ = writeln!(log, "{line}");
        }
        // Whoever started it may not want to hear any more.
        let _ = said.send(line);
    }
}

/// Where it is: `cargo xtask` says so; otherwise it is looked for in the build folder.
///
/// # Panics
/// When it is not there.
pub fn path() -> PathBuf {
    if let Some(given) = std::env::var_os("TOLLGATE_TEST_SERVER") {
        return given.into();
    }
    let test = std::env::current_exe().expect("a path");
    let folder = test.parent().and_then(Path::parent).expect("a build folder");
    let program = folder.join("tollgate");
    assert!(
        program.exists(),
        "{} is not there; build it with `cargo build`, or set TOLLGATE_TEST_SERVER",
        program.display()
    );
    program
}
