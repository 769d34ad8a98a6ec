//! Processes on a processor of their own, which end with this one.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use tokio::time::sleep;

/// The processor of the proxy that is measured.
pub(crate) const PROXY_CORE: u32 = 0;
/// The processor of everything else: callers, upstream, Postgres, Redis.
pub(crate) const OTHER_CORE: u32 = 1;

/// Where servers are that are not on everybody's PATH.
const SERVER_FOLDERS: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];
/// How long a process may take to end.
const STOP_WAIT: Duration = Duration::from_secs(45);
/// The same when this process is told to stop.
const DROP_WAIT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);
/// How much of a log an error shows, in bytes.
const LOG_TAIL_BYTES: usize = 2_000;

/// Leaves [`PROXY_CORE`] to the proxies: this process and all that it starts without saying where are on [`OTHER_CORE`].
pub(crate) fn pin_this_process() -> anyhow::Result<()> {
    let id = std::process::id().to_string();
    let output = Command::new("taskset")
        .args(["-a", "-c", "-p", &OTHER_CORE.to_string(), &id])
        .output()
        .context("taskset, of util-linux, cannot be run")?;
    ensure!(
        output.status.success(),
        "this needs processors {PROXY_CORE} and {OTHER_CORE}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

/// A process with [`PROXY_CORE`] to itself. It is told to stop when dropped, and by the system should this process be killed.
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program with these variables and no others, in a process group of its own: a Ctrl-C in the terminal is for
    /// this process to see.
    pub(crate) fn start(
        program: &Path,
        arguments: &[&str],
        variables: &[(&str, &str)],
        log: &Path,
    ) -> anyhow::Result<Self> {
        let file = File::create(log).with_context(|| log.display().to_string())?;
        let child = Command::new("taskset")
            .args(["-c", &PROXY_CORE.to_string(), "setpriv", "--pdeathsig", "TERM"])
            .arg(program)
            .args(arguments)
            .env_clear()
            .env("PATH", env::var_os("PATH").unwrap_or_default())
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .process_group(0)
            .spawn()
            .context("taskset, of util-linux, cannot be run")?;
        Ok(Self {
            child,
            log: log.to_owned(),
        })
    }

    /// Its process id: taskset and setpriv have become the program.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until `look` finds something in what it has written so far.
    pub(crate) async fn until<T>(
        &mut self,
        what: &str,
        wait_max: Duration,
        mut look: impl FnMut(&str) -> Option<T>,
    ) -> anyhow::Result<T> {
        let deadline = Instant::now() + wait_max;
        loop {
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            if let Some(found) = look(&log) {
                return Ok(found);
            }
            if self.has_ended() || Instant::now() >= deadline {
                bail!("not so: {what}. It has written:\n{}", tail(&log));
            }
            sleep(POLL).await;
        }
    }

    /// Tells it to stop and waits for its end.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        self.terminate();
        let deadline = Instant::now() + STOP_WAIT;
        while !self.has_ended() {
            ensure!(Instant::now() < deadline, "it does not stop within {STOP_WAIT:?}");
            sleep(POLL).await;
        }
        Ok(())
    }

    fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)) | Err(_))
    }

    fn terminate(&self) {
        // One that has ended takes no signal.
        let _ = Command::new("sh")
            .args(["-c", r#"kill -s TERM "$1""#, "kill", &self.id().to_string()])
            .stderr(Stdio::null())
            .status();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.has_ended() {
            return;
        }
        self.terminate();
        let deadline = Instant::now() + DROP_WAIT;
        while !self.has_ended() {
            if Instant::now() >= deadline {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            thread::sleep(POLL);
        }
    }
}

/// The first program of that name on PATH or where servers are.
pub(crate) fn find_server(name: &str) -> Option<PathBuf> {
    let path: OsString = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(SERVER_FOLDERS.into_iter().map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|program| program.is_file())
}

fn tail(log: &str) -> &str {
    let start = log.len().saturating_sub(LOG_TAIL_BYTES);
    let start = (start..=log.len()).find(|start| log.is_char_boundary(*start));
    &log[start.unwrap_or(0)..]
}
