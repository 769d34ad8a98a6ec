//! A Postgres server process of one's own, over a directory on local disk, from the binaries installed on this machine.
//!
//! Blocking and small: `server` wraps it for its runtime, `xtask` uses it without building the server.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

mod account;
mod binaries;
mod running;
#[cfg(test)]
mod tests;
mod throwaway;

use account::Account;
use binaries::Binaries;

pub use running::running_url;
pub use throwaway::Throwaway;

const DATABASE: &str = "tollgate";
const SUPERUSER: &str = "tollgate";

type Result<T, E = EmbeddedPostgresError> = std::result::Result<T, E>;

/// A free port may be taken between its choice and its use: this many are tried.
const START_ATTEMPTS_MAX: u32 = 3;
/// Recovery after a crash is included, so this is long.
const READY_WAIT_MAX: Duration = Duration::from_secs(60);
const READY_POLL: Duration = Duration::from_millis(30);
const FAST_STOP_SECONDS_MAX: u32 = 20;
const IMMEDIATE_STOP_SECONDS_MAX: u32 = 5;
const EXIT_WAIT_MAX: Duration = Duration::from_secs(5);
const EXIT_POLL: Duration = Duration::from_millis(10);
/// A log larger than this is emptied at the next start.
const LOG_BYTES_MAX: u64 = 16 * 1024 * 1024;
const LOG_TAIL_BYTES_MAX: u64 = 2048;
const PASSWORD_BYTES: usize = 24;

/// Why a private Postgres could not be started.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedPostgresError {
    /// No usable server binaries are installed.
    #[error(
        "no PostgreSQL server was found on PATH or under /usr/lib/postgresql: install it (Debian, Ubuntu: `apt-get \
         install postgresql`; Fedora: `dnf install postgresql-server`; macOS: `brew install postgresql`) or point \
         DATABASE_URL at a running one"
    )]
    BinariesMissing,
    /// The data were written by a major version that is not installed.
    #[error(
        "{} was written by PostgreSQL {data_version}, which is not installed (found: {installed}): install version \
         {data_version}, or move the directory away to begin anew",
        directory.display()
    )]
    VersionMissing {
        /// Where the data are.
        directory: PathBuf,
        /// The major version that wrote them.
        data_version: String,
        /// The major versions that are installed, separated by commas.
        installed: String,
    },
    /// Started as root, and neither `postgres` nor `nobody` exists to run the server as.
    #[error("PostgreSQL does not run as root, and there is no user `postgres` or `nobody` to run it as")]
    NoUnprivilegedUser,
    /// Started as root over a directory that the unprivileged user cannot reach.
    #[error(
        "PostgreSQL runs as user {user}, who cannot reach {}: {} is closed to others; choose a data directory outside \
         it, for example under /var/lib",
        directory.display(),
        closed.display()
    )]
    Unreachable {
        /// The user who would run the server.
        user: String,
        /// Where the data should be.
        directory: PathBuf,
        /// The first directory on the way that does not let others through.
        closed: PathBuf,
    },
    /// A file, directory or process could not be handled.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The system gave no random bytes for the password.
    #[error("the system has no random bytes for the database password")]
    NoRandomness,
    /// One of PostgreSQL's own programs failed.
    #[error("{program} failed: {output}")]
    Program {
        /// Its name.
        program: &'static str,
        /// What it said.
        output: String,
    },
    /// The server ended by itself, or did not accept connections in time.
    #[error("PostgreSQL {outcome}; the end of {}:\n{tail}", log.display())]
    NotReady {
        /// What happened instead of becoming ready.
        outcome: String,
        /// Its log.
        log: PathBuf,
        /// The last lines of it.
        tail: String,
    },
}

/// What a crash of the machine may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Nothing that was committed.
    Durable,
    /// Everything, for the sake of speed.
    Disposable,
}

/// How a server is stopped that is to go on later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    /// Transactions are rolled back, and everything is written.
    Fast,
    /// As a crash does it: the next start recovers.
    Immediate,
}

/// Whether this machine has a PostgreSQL server that [`Cluster::start`] can use for new data.
pub fn is_installed() -> bool {
    Binaries::find(Path::new("")).is_ok()
}

/// A running server over `<data dir>/postgres` that ends with [`Cluster::stop`].
///
/// It listens on a free port of 127.0.0.1 with a random password and logs to `<data dir>/postgres.log`. It runs in its
/// own process group, so a Ctrl-C in the terminal does not reach it. Dropped without `stop` it is ended at once;
/// committed data survive that.
#[derive(Debug)]
pub struct Cluster {
    binaries: Binaries,
    account: Account,
    directory: PathBuf,
    password: String,
    port: u16,
    durability: Durability,
    server: Child,
    is_stopped: bool,
}

impl Cluster {
    /// Starts Postgres over `data_dir`, creating the cluster and the database `tollgate` the first time. Returns once
    /// connections are accepted.
    ///
    /// A server that a killed process left running over the same directory is stopped first. As root the server runs as
    /// the user `postgres` (else `nobody`), to whom the data are given.
    pub fn start(data_dir: &Path, durability: Durability) -> Result<Self, EmbeddedPostgresError> {
        fs::create_dir_all(data_dir).map_err(io_error("create", data_dir))?;
        let data_dir = &fs::canonicalize(data_dir).map_err(io_error("find", data_dir))?;
        let directory = data_dir.join("postgres");
        let account = Account::choose()?;
        account.ensure_reach(data_dir)?;
        let binaries = Binaries::find(&directory)?;
        let password = password(data_dir, &account)?;

        if directory.join("PG_VERSION").exists() {
            account.own(&directory)?;
            end_leftover(&binaries, &account, &directory)?;
        } else {
            initialise(&binaries, &account, data_dir, &directory, durability)?;
        }

        let mut attempt = 1;
        loop {
            let mut cluster = Self::launch(&binaries, &account, data_dir, &directory, &password, durability)?;
            match cluster.wait_until_ready(data_dir) {
                Ok(()) => return Ok(cluster),
                Err(_) if cluster.has_ended() && attempt < START_ATTEMPTS_MAX => attempt += 1,
                Err(error) => return Err(error),
            }
        }
    }

    fn launch(
        binaries: &Binaries,
        account: &Account,
        data_dir: &Path,
        directory: &Path,
        password: &str,
        durability: Durability,
    ) -> Result<Self> {
        let port = free_port().map_err(io_error("find a free port for", directory))?;
        Ok(Self {
            binaries: binaries.clone(),
            account: account.clone(),
            directory: directory.to_owned(),
            password: password.to_owned(),
            port,
            durability,
            server: spawn(binaries, account, data_dir, directory, port, durability)?,
            is_stopped: false,
        })
    }

    /// Stops the server, which keeps its port and its data for [`Self::resume`].
    pub fn halt(&mut self, how: Halt) {
        let immediate = ("immediate", IMMEDIATE_STOP_SECONDS_MAX);
        match how {
            Halt::Fast => self.end(&[("fast", FAST_STOP_SECONDS_MAX), immediate]),
            Halt::Immediate => self.end(&[immediate]),
        }
    }

    /// Starts a server again that was halted, or has ended by itself. Returns once connections are accepted.
    pub fn resume(&mut self) -> Result<(), EmbeddedPostgresError> {
        if !self.is_stopped && !self.has_ended() {
            return Ok(());
        }
        let data_dir = self.directory.parent().unwrap_or(&self.directory).to_owned();
        self.server = spawn(
            &self.binaries,
            &self.account,
            &data_dir,
            &self.directory,
            self.port,
            self.durability,
        )?;
        self.is_stopped = false;
        self.wait_until_ready(&data_dir)
    }

    /// The connection URL of the database `tollgate`, with the superuser's password: not for logs.
    pub fn url(&self) -> String {
        url(&self.password, self.port)
    }

    /// A program of the installation that runs this server, such as `psql`.
    pub fn program(&self, name: &str) -> PathBuf {
        self.binaries.program(name)
    }

    /// The process id of the server.
    pub fn process_id(&self) -> u32 {
        self.server.id()
    }

    /// Ends the server: a fast shutdown within a bound, then an immediate one. No process is left when this returns.
    pub fn stop(mut self) {
        self.end(&[
            ("fast", FAST_STOP_SECONDS_MAX),
            ("immediate", IMMEDIATE_STOP_SECONDS_MAX),
        ]);
    }

    /// Being ready means that `createdb` connects and finds or makes the database.
    fn wait_until_ready(&mut self, data_dir: &Path) -> Result<()> {
        let deadline = Instant::now() + READY_WAIT_MAX;
        loop {
            if self.has_ended() {
                return Err(not_ready("ended while starting".to_owned(), data_dir));
            }
            let output = self.create_database()?;
            if output.status.success() || text(&output).contains("already exists") {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let seconds = READY_WAIT_MAX.as_secs();
                return Err(not_ready(
                    format!("took no connection in {seconds} s ({})", text(&output)),
                    data_dir,
                ));
            }
            sleep(READY_POLL);
        }
    }

    fn create_database(&self) -> Result<Output> {
        let createdb = self.binaries.program("createdb");
        self.account
            .command(&createdb)
            .args(["--host=127.0.0.1", "--no-password", "--maintenance-db=postgres"])
            .arg(format!("--port={}", self.port))
            .arg(format!("--username={SUPERUSER}"))
            .arg(DATABASE)
            .env("PGPASSWORD", &self.password)
            .env("PGCONNECT_TIMEOUT", "5")
            // That the database is there already is expected and no line for the server's log.
            .env("PGOPTIONS", "-c log_min_messages=fatal")
            .stdin(Stdio::null())
            .output()
            .map_err(io_error("run", &createdb))
    }

    fn has_ended(&mut self) -> bool {
        matches!(self.server.try_wait(), Ok(Some(_)) | Err(_))
    }

    /// Tries each shutdown mode for its seconds, then kills.
    fn end(&mut self, modes: &[(&str, u32)]) {
        if self.is_stopped {
            return;
        }
        self.is_stopped = true;
        for (mode, seconds_max) in modes {
            if self.has_ended() {
                return;
            }
            // What it says matters less than whether the server ended.
            let _ = pg_ctl_stop(&self.binaries, &self.account, &self.directory, mode, *seconds_max);
            if self.ends_within(EXIT_WAIT_MAX) {
                return;
            }
        }
        let _ = self.server.kill();
        let _ = self.server.wait();
    }

    fn ends_within(&mut self, wait_max: Duration) -> bool {
        let deadline = Instant::now() + wait_max;
        while !self.has_ended() {
            if Instant::now() >= deadline {
                return false;
            }
            sleep(EXIT_POLL);
        }
        true
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.end(&[("immediate", IMMEDIATE_STOP_SECONDS_MAX)]);
    }
}

fn url(password: &str, port: u16) -> String {
    format!("postgres://{SUPERUSER}:{password}@127.0.0.1:{port}/{DATABASE}")
}

fn spawn(
    binaries: &Binaries,
    account: &Account,
    data_dir: &Path,
    directory: &Path,
    port: u16,
    durability: Durability,
) -> Result<Child> {
    let log_path = log_path(data_dir);
    let log = open_log(&log_path).map_err(io_error("open", &log_path))?;
    let log_again = log.try_clone().map_err(io_error("open", &log_path))?;
    let mut command = account.command(&binaries.program("postgres"));
    command.arg("-D").arg(directory);
    for setting in server_settings(port, durability) {
        command.arg("-c").arg(setting);
    }
    command
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(log_again)
        .process_group(0)
        .spawn()
        .map_err(io_error("start", &binaries.program("postgres")))
}

fn server_settings(port: u16, durability: Durability) -> Vec<String> {
    let mut settings = vec![
        "listen_addresses=127.0.0.1".to_owned(),
        format!("port={port}"),
        "unix_socket_directories=".to_owned(),
        "logging_collector=off".to_owned(),
        "log_destination=stderr".to_owned(),
        "password_encryption=scram-sha-256".to_owned(),
        "timezone=UTC".to_owned(),
        "log_timezone=UTC".to_owned(),
    ];
    if durability == Durability::Disposable {
        // Tests run side by side, each with a pool of its own.
        settings.extend(
            [
                "fsync=off",
                "synchronous_commit=off",
                "full_page_writes=off",
                "max_connections=400",
            ]
            .map(str::to_owned),
        );
    }
    settings
}

/// Makes the cluster beside its place and moves it there once complete, so that an interrupted attempt leaves nothing
/// that looks like a database.
fn initialise(
    binaries: &Binaries,
    account: &Account,
    data_dir: &Path,
    directory: &Path,
    durability: Durability,
) -> Result<()> {
    let partial = data_dir.join("postgres.partial");
    if partial.exists() {
        fs::remove_dir_all(&partial).map_err(io_error("remove", &partial))?;
    }
    // C.UTF-8 gives bytewise order and still knows every letter's case; systems without it get plain C.
    let mut output = initdb(binaries, account, data_dir, &partial, "C.UTF-8", durability)?;
    if !output.status.success() && text(&output).contains("invalid locale") {
        output = initdb(binaries, account, data_dir, &partial, "C", durability)?;
    }
    if !output.status.success() {
        return Err(EmbeddedPostgresError::Program {
            program: "initdb",
            output: text(&output),
        });
    }
    fs::rename(&partial, directory).map_err(io_error("put in place", directory))
}

fn initdb(
    binaries: &Binaries,
    account: &Account,
    data_dir: &Path,
    partial: &Path,
    locale: &str,
    durability: Durability,
) -> Result<Output> {
    fs::create_dir_all(partial).map_err(io_error("create", partial))?;
    fs::set_permissions(partial, Permissions::from_mode(0o700)).map_err(io_error("protect", partial))?;
    account.own(partial)?;
    let program = binaries.program("initdb");
    let mut command = account.command(&program);
    command
        .arg("--pgdata")
        .arg(partial)
        .arg("--pwfile")
        .arg(password_path(data_dir))
        .arg(format!("--username={SUPERUSER}"))
        .arg(format!("--locale={locale}"))
        .args(["--encoding=UTF8", "--auth=scram-sha-256"])
        .stdin(Stdio::null());
    if durability == Durability::Disposable {
        command.arg("--no-sync");
    }
    command.output().map_err(io_error("run", &program))
}

/// Stops a server that an earlier process started over `directory` and could not stop.
fn end_leftover(binaries: &Binaries, account: &Account, directory: &Path) -> Result<()> {
    let pid_path = directory.join("postmaster.pid");
    let Ok(pid_file) = fs::read_to_string(&pid_path) else {
        return Ok(());
    };
    let pid = pid_file.lines().next().unwrap_or_default().trim().to_owned();
    if !is_server_over(directory, &pid) {
        // The number may belong to a stranger by now, whom Postgres would respect and we must not signal.
        return fs::remove_file(&pid_path).map_err(io_error("remove", &pid_path));
    }
    for (mode, seconds_max) in [
        ("fast", FAST_STOP_SECONDS_MAX),
        ("immediate", IMMEDIATE_STOP_SECONDS_MAX),
    ] {
        let output = pg_ctl_stop(binaries, account, directory, mode, seconds_max)?;
        if output.status.success() || !pid_path.exists() {
            return Ok(());
        }
        if mode == "immediate" {
            return Err(EmbeddedPostgresError::Program {
                program: "pg_ctl stop",
                output: text(&output),
            });
        }
    }
    Ok(())
}

/// Whether process `pid` is a Postgres server over `directory`, which it always has as its working directory. Where
/// the system does not tell (no /proc), the answer is yes.
fn is_server_over(directory: &Path, pid: &str) -> bool {
    if !Path::new("/proc/self/cwd").exists() {
        return true;
    }
    fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|working_directory| working_directory == directory)
}

fn pg_ctl_stop(
    binaries: &Binaries,
    account: &Account,
    directory: &Path,
    mode: &str,
    seconds_max: u32,
) -> Result<Output> {
    let program = binaries.program("pg_ctl");
    account
        .command(&program)
        .args(["stop", "--silent", "--wait", "--mode", mode])
        .arg(format!("--timeout={seconds_max}"))
        .arg("--pgdata")
        .arg(directory)
        .stdin(Stdio::null())
        .output()
        .map_err(io_error("run", &program))
}

/// The superuser's password: made once and kept in the data directory, readable by the server's user alone.
fn password(data_dir: &Path, account: &Account) -> Result<String> {
    let path = password_path(data_dir);
    match fs::read_to_string(&path) {
        Ok(password) if !password.is_empty() => return Ok(password),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(io_error("read", &path)(error)),
    }
    let mut bytes = [0_u8; PASSWORD_BYTES];
    getrandom::fill(&mut bytes).map_err(|_| EmbeddedPostgresError::NoRandomness)?;
    let password: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&path)
        .and_then(|mut file| {
            file.write_all(password.as_bytes())?;
            file.sync_all()
        })
        .map_err(io_error("write", &path))?;
    if let Some((uid, gid)) = account.ids() {
        chown(&path, Some(uid), Some(gid)).map_err(io_error("give away", &path))?;
    }
    Ok(password)
}

fn password_path(data_dir: &Path) -> PathBuf {
    data_dir.join("postgres-password")
}

fn log_path(data_dir: &Path) -> PathBuf {
    data_dir.join("postgres.log")
}

fn open_log(path: &Path) -> io::Result<File> {
    let log = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    if log.metadata()?.len() > LOG_BYTES_MAX {
        log.set_len(0)?;
    }
    Ok(log)
}

fn not_ready(outcome: String, data_dir: &Path) -> EmbeddedPostgresError {
    let log = log_path(data_dir);
    let tail = log_tail(&log).unwrap_or_default();
    EmbeddedPostgresError::NotReady { outcome, log, tail }
}

fn log_tail(path: &Path) -> io::Result<String> {
    let mut log = File::open(path)?;
    let length = log.metadata()?.len();
    log.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES_MAX)))?;
    let mut tail = Vec::new();
    log.read_to_end(&mut tail)?;
    Ok(String::from_utf8_lossy(&tail).into_owned())
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> EmbeddedPostgresError {
    let path = path.to_owned();
    move |source| EmbeddedPostgresError::Io { action, path, source }
}

fn text(output: &Output) -> String {
    let mut text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if text.is_empty() {
        text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    }
    text
}
