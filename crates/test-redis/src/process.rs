//! A server process that ends with this one, however this one ends.

use std::env;
use std::fs::OpenOptions;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Names of the server program, in the order of preference.
const PROGRAMS: [&str; 2] = ["redis-server", "valkey-server"];

/// Waits until its standard input closes, which the end of this process does; then ends the server `$1` and removes its
/// directory `$2`.
const WATCH: &str = r#"
read -r _
kill -KILL "$1"
rm -rf "$2"
"#;

/// A running server over `directory/redis.conf`, killed when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    server: Child,
    pub(crate) watch: Child,
}

impl Process {
    pub(crate) fn start(directory: &Path) -> Self {
        let log = OpenOptions::new()
            .append(true)
            .create(true)
            .open(log_path(directory))
            .expect("a log file");
        let server = Command::new(program())
            .arg("redis.conf")
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("the log file"))
            .stderr(log)
            .process_group(0)
            .spawn()
            .expect("the Redis server starts");
        let watch = Command::new("sh")
            .args(["-c", WATCH, "watch", &server.id().to_string()])
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("sh starts");
        Self { server, watch }
    }

    pub(crate) fn id(&self) -> u32 {
        self.server.id()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        matches!(self.server.try_wait(), Ok(Some(_)) | Err(_))
    }

    /// Sends it a signal, by name.
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("sh")
            .args(["-c", r#"kill -s "$1" "$2""#, "kill", name, &self.id().to_string()])
            .status()
            .expect("sh starts");
        assert!(status.success(), "the server took no {name}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The watch first, before the server's process id is free for others.
        let _ = self.watch.kill();
        let _ = self.watch.wait();
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// What a server over `directory` wrote to its log.
pub(crate) fn log(directory: &Path) -> String {
    std::fs::read_to_string(log_path(directory)).unwrap_or_default()
}

fn log_path(directory: &Path) -> PathBuf {
    directory.join("redis.log")
}

fn program() -> PathBuf {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = PROGRAMS.iter().find_map(|name| {
        env::split_paths(&path)
            .map(|directory| directory.join(name))
            .find(|program| program.is_file())
    });
    found.unwrap_or_else(|| {
        panic!(
            "neither {} is on PATH: `cargo xtask test` installs it, or do so by hand (Debian, Ubuntu: `apt-get install \
             redis-server`; Fedora: `dnf install valkey`; macOS: `brew install redis`)",
            PROGRAMS.join(" nor ")
        )
    })
}
