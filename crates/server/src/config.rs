//! What the program is told: commands, flags and environment. Every flag has a variable and every variable a flag.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use domain::management_tokens::TokenText;
use gateway::QueueSettings;
use ledger::JournalSettings;
use limits::RedisSettings;
use upstream::Timeouts;

use crate::trusted_proxies::TrustedProxies;

/// Tollgate: an LLM gateway with budgets, limits and a ledger.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, about, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What the program can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the gateway, the console and the API.
    Serve(Box<ServeArgs>),
    /// Serve a made-up organisation with live traffic against a simulated provider.
    Demo(DemoArgs),
    /// Bring the database schema up to date, and stop.
    Migrate(DatabaseArgs),
    /// Look whether the installation is fit for production, and print what is to be done. Reads what gateways that run have
    /// written. Ends with 0 if all is good, with 1 if something is to be done, with 2 if it could not look.
    Doctor(DatabaseArgs),
    /// Check and export the ledger.
    Ledger {
        /// What to do with the ledger.
        #[command(subcommand)]
        command: LedgerCommand,
    },
    /// Make management tokens.
    Token {
        /// What to do with tokens.
        #[command(subcommand)]
        command: TokenCommand,
    },
    /// Manage operators from the command line.
    Operator {
        /// What to do with operators.
        #[command(subcommand)]
        command: OperatorCommand,
    },
}

/// The ledger from the command line.
#[derive(Debug, Subcommand)]
pub enum LedgerCommand {
    /// Add up every entry again, compare with every roll-up and budget, and print what differs. Ends with 0 if everything
    /// agrees, with 1 if something differs, with 2 if it could not be checked. Gateways may go on meanwhile.
    Verify(LedgerVerifyArgs),
    /// Write entries as CSV, the oldest first, from one snapshot of the database. The last line begins with `total`; a file
    /// without it is not whole, and the program ends with another status than 0. Gateways may go on meanwhile.
    Export(LedgerExportArgs),
}

/// What to check of the ledger.
#[derive(Clone, Debug, Args)]
pub struct LedgerVerifyArgs {
    /// Postgres and the data directory.
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// The first day to check, such as 2026-11-01, in the billing time zone; where the ledger begins, if absent.
    #[arg(long)]
    pub from: Option<chrono::NaiveDate>,
    /// The day to stop before; where the ledger ends, if absent.
    #[arg(long)]
    pub until: Option<chrono::NaiveDate>,
    /// How many differences are printed; the rest is counted.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub differences: u32,
    /// Make the 15-minute roll-ups of days on which they differ anew from their entries, sums by month and day anew from
    /// those, and print what was changed. Gateways keep entries in their journals meanwhile. Ends with 0 if everything
    /// agrees then.
    #[arg(long)]
    pub repair: bool,
}

/// Which entries to write, and where.
#[derive(Clone, Debug, Args)]
pub struct LedgerExportArgs {
    /// Postgres and the data directory.
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// Which entries.
    #[arg(long, value_enum, default_value_t)]
    pub kind: ExportKind,
    /// A calendar month, such as 2026-11, in the billing time zone. Requests count in the month in which they were admitted
    /// or refused.
    #[arg(long, conflicts_with_all = ["from", "until"])]
    pub month: Option<domain::periods::Month>,
    /// The first day, such as 2026-11-01, in the billing time zone; where the ledger begins, if absent.
    #[arg(long)]
    pub from: Option<chrono::NaiveDate>,
    /// The day to stop before; where the ledger ends, if absent.
    #[arg(long)]
    pub until: Option<chrono::NaiveDate>,
    /// The id of a tenant, for its entries only.
    #[arg(long)]
    pub tenant: Option<domain::ids::TenantId>,
    /// Where to write; on standard output, if absent. The file is there under this name once it is whole, in place of
    /// another one of that name.
    #[arg(long)]
    pub output: Option<PathBuf>,
}

/// Kinds of entry to write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ExportKind {
    /// Requests that ran.
    #[default]
    Settlements,
    /// Requests that were refused.
    Rejections,
    /// Signed corrections.
    Adjustments,
}

/// Tokens from the command line.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Print a new management token, for TOLLGATE_BOOTSTRAP_TOKEN at first start. It means nothing until a gateway adopts it.
    Generate,
}

/// Operators from the command line.
#[derive(Debug, Subcommand)]
pub enum OperatorCommand {
    /// Create an operator and print a one-time link to choose the password.
    Create(OperatorCreateArgs),
}

/// Where Postgres is.
#[derive(Clone, Debug, Args)]
pub struct DatabaseArgs {
    /// Postgres, as postgres://user:password@host:5432/name. Without it a private Postgres is started under the data
    /// directory, which is meant for evaluation.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: Option<String>,
    /// Where journal, kept policy, generated secrets and the private Postgres live. One gateway, one directory.
    #[arg(long, env = "TOLLGATE_DATA_DIR", default_value = "data")]
    pub data_dir: PathBuf,
}

/// How to serve.
#[derive(Clone, Debug, Args)]
pub struct ServeArgs {
    /// Postgres and the data directory.
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// Where the proxy listens; console and health too, unless they have an address of their own.
    #[arg(long, env = "TOLLGATE_LISTEN", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// An address of its own for console, API, health and metrics.
    #[arg(long, env = "TOLLGATE_ADMIN_LISTEN")]
    pub admin_listen: Option<SocketAddr>,
    /// How people reach the console, such as https://tollgate.example.com: for links, and so that cookies are only sent
    /// over TLS. The address it listens on, if absent.
    #[arg(long, env = "TOLLGATE_PUBLIC_URL")]
    pub public_url: Option<url::Url>,
    /// How programs reach the proxy, such as https://llm.example.com, where it is not the console's address: for snippets.
    #[arg(long, env = "TOLLGATE_GATEWAY_URL")]
    pub gateway_url: Option<url::Url>,
    /// Reverse proxies whose X-Forwarded-For is believed, as addresses or networks separated by commas, such as
    /// 10.0.0.0/8,fd00::/8: the console throttles sign-ins and notes changes by the caller's address. Nobody's, if absent.
    #[arg(long, env = "TOLLGATE_TRUSTED_PROXIES")]
    pub trusted_proxies: Option<TrustedProxies>,
    /// Redis, for counters that all gateways share: redis://[[user]:password@]host[:port][/database], rediss:// for TLS,
    /// redis-cluster:// or rediss-cluster:// with the addresses of some nodes, separated by commas. Without it counters are
    /// in this process's memory, which is right for one gateway.
    #[arg(long, env = "REDIS_URL", hide_env_values = true)]
    pub redis_url: Option<String>,
    /// The certificate authorities trusted to vouch for Redis, as a file in PEM; the system's, if absent.
    #[arg(long, env = "TOLLGATE_REDIS_CA")]
    pub redis_ca: Option<PathBuf>,
    /// How long one call to Redis may take before the gateway goes on without it, in milliseconds.
    #[arg(long, env = "TOLLGATE_REDIS_TIMEOUT_MS", default_value_t = 40, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub redis_timeout_ms: u64,
    /// How many requests may wait for room at this gateway. With 0 nobody waits: whoever finds no room is refused at once.
    #[arg(long, env = "TOLLGATE_QUEUE_PLACES", default_value_t = 64, value_parser = clap::value_parser!(u32).range(..=10_000))]
    pub queue_places: u32,
    /// How many tokens those that wait may be expected to use together.
    #[arg(long, env = "TOLLGATE_QUEUE_TOKENS", default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub queue_tokens: u64,
    /// How long a request may wait for room, in seconds. Below the request time-out.
    #[arg(long, env = "TOLLGATE_QUEUE_TIMEOUT_SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    pub queue_timeout_seconds: u64,
    /// How long connecting to a provider may take, in seconds.
    #[arg(long, env = "TOLLGATE_CONNECT_TIMEOUT_SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=60))]
    pub connect_timeout_seconds: u64,
    /// How long a provider may take to begin its answer, in seconds.
    #[arg(long, env = "TOLLGATE_FIRST_BYTE_TIMEOUT_SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub first_byte_timeout_seconds: u64,
    /// How long a provider may be silent within its answer, in seconds.
    #[arg(long, env = "TOLLGATE_CHUNK_TIMEOUT_SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub chunk_timeout_seconds: u64,
    /// How long a request may take at providers altogether, in seconds.
    #[arg(long, env = "TOLLGATE_REQUEST_TIMEOUT_SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub request_timeout_seconds: u64,
    /// 32 bytes in base64 or hex that seal provider credentials. Generated into the data directory if absent; every
    /// gateway of one database needs the same.
    #[arg(long, env = "TOLLGATE_SECRET_KEY", hide_env_values = true)]
    pub secret_key: Option<String>,
    /// A management token for automation, made by `tollgate token generate`: adopted at a start at which none was ever issued,
    /// for all tenants and with every permission. It works for 90 days; issue others with it in place.
    #[arg(long, env = "TOLLGATE_BOOTSTRAP_TOKEN", hide_env_values = true)]
    pub bootstrap_token: Option<String>,
    /// The billing time zone, as an IANA name. Fixed at first start.
    #[arg(long, env = "TOLLGATE_TIME_ZONE")]
    pub time_zone: Option<chrono_tz::Tz>,
    /// The billing currency, as an ISO 4217 code. Fixed at first start.
    #[arg(long, env = "TOLLGATE_CURRENCY")]
    pub currency: Option<String>,
    /// This gateway's name, unique among those on one database. Generated into the data directory if absent.
    #[arg(long, env = "TOLLGATE_INSTANCE")]
    pub instance: Option<String>,
    /// Where the console's files are. Beside the program, if absent.
    #[arg(long, env = "TOLLGATE_SITE_DIR")]
    pub site_dir: Option<PathBuf>,
    /// When the journal asks for the disk: os, interval (each second) or each (before every answer).
    #[arg(long, env = "TOLLGATE_JOURNAL_FSYNC", default_value = "interval")]
    pub journal_fsync: ledger::FsyncPolicy,
    /// The journal's size on disk at which no new request is taken on, in MiB.
    #[arg(long, env = "TOLLGATE_JOURNAL_MIB_MAX", default_value_t = 4_096, value_parser = clap::value_parser!(u64).range(1..=1_048_576))]
    pub journal_mib_max: u64,
    /// The share of that size, in percent, above which refusals are counted in memory instead, so that they leave room for
    /// requests that run.
    #[arg(long, env = "TOLLGATE_JOURNAL_REFUSALS_PERCENT", default_value_t = 75, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub journal_refusals_percent: u8,
    /// How long answers under way may take when the program is told to stop, in seconds.
    #[arg(long, env = "TOLLGATE_GRACE_SECONDS", default_value_t = 30)]
    pub grace_seconds: u64,
    /// How the log is written: json or text.
    #[arg(long, env = "TOLLGATE_LOG_FORMAT", default_value = "json")]
    pub log_format: crate::logging::LogFormat,
}

impl ServeArgs {
    /// Bounds of the queue.
    pub(crate) fn queue(&self) -> QueueSettings {
        QueueSettings {
            places: self.queue_places as usize,
            waiting_tokens_max: self.queue_tokens,
            timeout_ms: self.queue_timeout_seconds.saturating_mul(1_000),
        }
    }

    /// The token for automation, if one is given. Not left to the command line's parser, which would show one that is mistyped.
    pub(crate) fn bootstrap_token(&self) -> anyhow::Result<Option<TokenText>> {
        let given = self.bootstrap_token.as_deref().map(str::trim);
        given
            .filter(|text| !text.is_empty())
            .map(TokenText::parse)
            .transpose()
            .context("TOLLGATE_BOOTSTRAP_TOKEN cannot be used; `tollgate token generate` makes one")
    }

    /// Bounds of the journal.
    pub(crate) fn journal(&self) -> JournalSettings {
        JournalSettings {
            fsync: self.journal_fsync,
            refusals_percent: self.journal_refusals_percent,
            ..JournalSettings::with_room(self.journal_mib_max << 20)
        }
    }

    /// Time-outs towards providers.
    pub(crate) fn upstream_timeouts(&self) -> Timeouts {
        Timeouts {
            connect_ms: self.connect_timeout_seconds * 1_000,
            first_byte_ms: self.first_byte_timeout_seconds * 1_000,
            chunk_ms: self.chunk_timeout_seconds * 1_000,
            total_ms: self.request_timeout_seconds * 1_000,
        }
    }

    /// Where shared counters are, if anywhere.
    pub(crate) fn redis(&self) -> Option<RedisSettings> {
        let url = self.redis_url.as_deref().filter(|url| !url.is_empty())?;
        Some(RedisSettings {
            ca_certificate: self.redis_ca.clone(),
            command_timeout_ms: self.redis_timeout_ms,
            ..RedisSettings::new(url)
        })
    }
}

/// How to run the demo.
#[derive(Clone, Debug, Args)]
pub struct DemoArgs {
    /// Where the demo keeps its data; delete it to start over.
    #[arg(long, env = "TOLLGATE_DATA_DIR", default_value = "demo-data")]
    pub data_dir: PathBuf,
    /// Where it listens.
    #[arg(long, env = "TOLLGATE_LISTEN", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// Where the console's files are. Beside the program, if absent.
    #[arg(long, env = "TOLLGATE_SITE_DIR")]
    pub site_dir: Option<PathBuf>,
    /// Start without the light live traffic.
    #[arg(long)]
    pub quiet: bool,
}

/// Whom to create.
#[derive(Clone, Debug, Args)]
pub struct OperatorCreateArgs {
    /// Postgres and the data directory.
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// The operator's e-mail address.
    #[arg(long)]
    pub email: String,
    /// The operator's name.
    #[arg(long)]
    pub name: String,
    /// How people reach the console, for the link.
    #[arg(long, env = "TOLLGATE_PUBLIC_URL", default_value = "http://127.0.0.1:8080")]
    pub public_url: url::Url,
}
