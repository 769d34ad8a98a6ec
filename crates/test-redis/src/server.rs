//! One server.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use crate::options::Options;
use crate::process::Process;
use crate::{certificate, poll, port, process, resp};

/// A free port may be taken between its choice and its use: this many are tried.
const START_ATTEMPTS_MAX: u32 = 5;
const READY_WAIT_MAX: Duration = Duration::from_secs(20);
const REPLICATION_WAIT_MAX: Duration = Duration::from_secs(20);

/// A server of one's own on a free port of 127.0.0.1, empty and without persistence. It is killed when dropped.
#[derive(Debug)]
pub struct RedisServer {
    options: Options,
    port: u16,
    tls_port: Option<u16>,
    pub(crate) process: Option<Process>,
    // Removed after the process has ended: fields drop in this order.
    pub(crate) directory: TempDir,
}

impl RedisServer {
    /// A plain server. Returns once it answers.
    pub async fn start() -> Self {
        Self::start_with(Options::default()).await
    }

    /// A server with options. Returns once it answers.
    pub async fn start_with(options: Options) -> Self {
        let directory = tempfile::Builder::new()
            .prefix("tollgate-redis-")
            .tempdir()
            .expect("a temporary directory");
        if options.has_tls {
            certificate::write(directory.path());
        }
        let mut server = Self {
            options,
            port: 0,
            tls_port: None,
            process: None,
            directory,
        };
        let mut attempt = 1;
        while !server.tries_to_start().await {
            assert!(
                attempt < START_ATTEMPTS_MAX,
                "the Redis server ends while starting:\n{}",
                server.log()
            );
            attempt += 1;
        }
        server
    }

    /// On new ports; false when the server ended by itself.
    async fn tries_to_start(&mut self) -> bool {
        self.port = port::free();
        self.tls_port = self.options.has_tls.then(port::free);
        fs::write(self.directory.path().join("redis.conf"), self.config()).expect("a configuration file");
        self.launches().await
    }

    async fn launches(&mut self) -> bool {
        self.process = Some(Process::start(self.directory.path()));
        let mut has_ended = false;
        let this = &mut *self;
        poll::until("the Redis server answers", READY_WAIT_MAX, async || {
            has_ended = this.process.as_mut().is_none_or(Process::has_ended);
            if has_ended {
                return Ok(());
            }
            match this.try_command(&["PING"]).await {
                Ok(Ok(_)) => Ok(()),
                Ok(Err(refusal)) => Err(refusal),
                Err(error) => Err(error.to_string()),
            }
        })
        .await;
        !has_ended
    }

    /// Where it listens, with the default user's password.
    pub fn url(&self) -> String {
        match &self.options.password {
            Some(password) => self.url_with(&format!(":{password}@")),
            None => self.url_with(""),
        }
    }

    /// Where it listens, for a user named in the options.
    pub fn url_as(&self, name: &str) -> String {
        let user = self.options.users.iter().find(|user| user.name == name);
        let user = user.unwrap_or_else(|| panic!("the options name no user {name}"));
        self.url_with(&format!("{}:{}@", user.name, user.password))
    }

    fn url_with(&self, login: &str) -> String {
        match self.tls_port {
            Some(port) => format!("rediss://{login}localhost:{port}"),
            None => format!("redis://{login}127.0.0.1:{}", self.port),
        }
    }

    /// The port without TLS, which a server with TLS has too.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The certificate, in PEM, of the authority that vouches for a server with TLS.
    pub fn ca_certificate(&self) -> PathBuf {
        assert!(self.options.has_tls, "the options ask for no TLS");
        certificate::authority_path(self.directory.path())
    }

    /// Gives an order as the default user and answers with what the server says; the elements of an array come one a
    /// line.
    ///
    /// # Panics
    /// When the server refuses or does not answer.
    pub async fn command(&self, words: &[&str]) -> String {
        match self.try_command(words).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(refusal)) => panic!("{words:?}: {refusal}"),
            Err(error) => panic!("{words:?}: no answer: {error}"),
        }
    }

    async fn try_command(&self, words: &[&str]) -> std::io::Result<Result<String, String>> {
        resp::command(self.port, self.options.password.as_deref(), words).await
    }

    /// One field of `INFO`.
    pub async fn info(&self, field: &str) -> String {
        let info = self.command(&["INFO"]).await;
        let prefix = format!("{field}:");
        let value = info.lines().find_map(|line| line.strip_prefix(&prefix));
        value.unwrap_or_else(|| panic!("INFO has no {field}")).to_owned()
    }

    /// Stops it without closing anything: connections stay, nothing is answered until [`Self::resume`].
    pub fn pause(&self) {
        self.running().signal("STOP");
    }

    /// Lets a paused server go on, with everything it was sent meanwhile.
    pub fn resume(&self) {
        self.running().signal("CONT");
    }

    /// Ends it as a crash does, with all its data.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Starts it anew, empty, on the same port. Returns once it answers.
    pub async fn restart(&mut self) {
        self.kill();
        assert!(
            self.launches().await,
            "the Redis server ends while starting:\n{}",
            self.log()
        );
    }

    /// Makes it a replica of another. Returns once it has the other's data.
    pub async fn replica_of(&self, primary: &Self) {
        if let Some(password) = &primary.options.password {
            self.command(&["CONFIG", "SET", "masterauth", password]).await;
        }
        self.command(&["REPLICAOF", "127.0.0.1", &primary.port.to_string()])
            .await;
        poll::until("the replica is in step", REPLICATION_WAIT_MAX, async || {
            match self.info("master_link_status").await.as_str() {
                "up" => Ok(()),
                status => Err(format!("the link to its primary is {status}")),
            }
        })
        .await;
    }

    /// Makes a replica a server of its own.
    pub async fn promote(&self) {
        self.command(&["REPLICAOF", "NO", "ONE"]).await;
    }

    fn running(&self) -> &Process {
        self.process.as_ref().expect("the server was killed")
    }

    fn log(&self) -> String {
        process::log(self.directory.path())
    }

    fn config(&self) -> String {
        let mut lines = vec![
            "bind 127.0.0.1".to_owned(),
            format!("port {}", self.port),
            "save \"\"".to_owned(),
            "appendonly no".to_owned(),
            "maxmemory-policy noeviction".to_owned(),
            // A replica would otherwise wait for others that might want the same copy.
            "repl-diskless-sync-delay 0".to_owned(),
        ];
        if let Some(password) = &self.options.password {
            lines.push(format!("requirepass {password}"));
        }
        for user in &self.options.users {
            lines.push(format!("user {} on >{} {}", user.name, user.password, user.rules));
        }
        if let Some(port) = self.tls_port {
            lines.push(format!("tls-port {port}"));
            lines.push("tls-cert-file server.pem".to_owned());
            lines.push("tls-key-file server.key".to_owned());
            lines.push(format!("tls-ca-cert-file {}", file_name(&self.ca_certificate())));
            lines.push("tls-auth-clients no".to_owned());
        }
        lines.extend(self.options.lines.iter().cloned());
        lines.push(String::new());
        lines.join("\n")
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
