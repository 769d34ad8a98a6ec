//! The only door to Postgres: one module per noun, checked queries, rows turned into domain values here.

pub mod adjustments;
pub mod alerts;
pub mod audit;
pub mod budget_events;
pub mod budgets;
pub mod calendar;
pub mod early_retries;
pub mod entries;
pub mod error;
pub mod exports;
pub mod instances;
pub mod jobs;
pub mod key_uses;
pub mod key_warnings;
pub mod keys;
pub mod ledger;
pub mod limit_tree;
pub mod limits;
pub mod management_tokens;
pub mod models;
pub mod named_limits;
pub mod one_time_links;
pub mod people;
pub mod plans;
pub mod policy;
pub mod priorities;
pub mod quarantine;
pub mod random;
pub mod rehearsals;
pub mod rejections;
pub mod reports;
pub mod retention;
pub mod rollups;
pub mod scope_names;
pub mod sealing;
pub mod sessions;
pub mod settings;
pub mod settlements;
pub mod sign_in;
pub mod tags;
pub mod tenants;
pub mod upstreams;
pub mod verification;

use std::future::Future;
use std::io;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::Connection as _;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use tokio::sync::Semaphore;
use tokio::time::timeout;

pub use error::StoreError;

/// Connections at most, unless told otherwise: the console's, and those of commands that do one thing.
pub const CONNECTIONS_MAX: u32 = 16;
/// Connections at most of a gateway's background tasks, so that no report keeps the policy or the ledger waiting. The
/// request path waits for none, but for jobs: two for their callers, two for new ones, two for their
/// runs.
pub const GATEWAY_CONNECTIONS_MAX: u32 = 12;
/// How long a caller waits for a free connection, in milliseconds.
const ACQUIRE_TIMEOUT_MS: u64 = 3_000;
/// How long one statement may run, in milliseconds. Reports over many rows stay well below it.
const STATEMENT_TIMEOUT_MS: u64 = 60_000;
/// How long a transaction may stand open with nothing asked in it, in milliseconds.
const IDLE_TRANSACTION_TIMEOUT_MS: u64 = 60_000;
/// How long Postgres may take to say that it is there, in milliseconds.
const PING_WAIT_MS: u64 = 5_000;
/// How long a connection may take to settle down after its use was broken off, in milliseconds; it is closed otherwise.
const RELEASE_WAIT_MS: u64 = 2_000;

/// The schema's changes, applied on start under Postgres's advisory lock.
pub static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("../../migrations");

/// A transaction that is rolled back unless committed.
pub type Transaction = sqlx::Transaction<'static, sqlx::Postgres>;

/// Postgres, as the rest of the program knows it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    pool: PgPool,
    /// Places for reports that are streamed, each of which keeps a connection.
    report_streams: Arc<Semaphore>,
}

impl Store {
    /// Prepares connections to `url` without making one, so that a process can start while Postgres is away.
    pub fn connect_lazily(url: &str) -> Result<Self, StoreError> {
        Self::connect_lazily_with(url, CONNECTIONS_MAX)
    }

    /// The same with at most so many connections.
    pub fn connect_lazily_with(url: &str, connections_max: u32) -> Result<Self, StoreError> {
        Ok(Self::over(options(url)?, connections_max))
    }

    /// The same for whoever only looks: Postgres refuses every change.
    pub fn connect_read_only(url: &str) -> Result<Self, StoreError> {
        let options = options(url)?.options([("default_transaction_read_only", "on")]);
        Ok(Self::over(options, CONNECTIONS_MAX))
    }

    fn over(options: PgConnectOptions, connections_max: u32) -> Self {
        let pool = PgPoolOptions::new()
            .max_connections(connections_max)
            .acquire_timeout(Duration::from_millis(ACQUIRE_TIMEOUT_MS))
            // The pool itself would wait without end for a server that keeps silent, and count the connection meanwhile.
            .after_release(|connection, _| {
                Box::pin(async move {
                    let answered = timeout(Duration::from_millis(RELEASE_WAIT_MS), connection.ping()).await;
                    answered.map_err(|_| late(RELEASE_WAIT_MS))??;
                    Ok(true)
                })
            })
            .connect_lazy_with(options);
        Self {
            pool,
            report_streams: Arc::new(Semaphore::new(reports::STREAMS_MAX)),
        }
    }

    /// Brings the schema up to date. Safe to call from several processes at once. Takes as long as it takes: a change may
    /// have to go through all of the ledger.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        let pool = self.patient_pool();
        let migrated = MIGRATOR.run(&pool).await.map_err(StoreError::from);
        pool.close().await;
        migrated
    }

    /// A pool of its own without a time-out for statements, so that nothing else runs without one. To be closed after use.
    pub(crate) fn patient_pool(&self) -> PgPool {
        let options = (*self.pool.connect_options())
            .clone()
            .options([("statement_timeout", "0"), ("idle_in_transaction_session_timeout", "0")]);
        PgPoolOptions::new()
            .max_connections(1)
            .acquire_timeout(Duration::from_millis(ACQUIRE_TIMEOUT_MS))
            .connect_lazy_with(options)
    }

    /// Starts a transaction.
    pub async fn begin(&self) -> Result<Transaction, StoreError> {
        Ok(self.pool.begin().await?)
    }

    /// Starts a read-only transaction that sees one snapshot of the database throughout.
    pub async fn begin_snapshot(&self) -> Result<Transaction, StoreError> {
        let mut transaction = self.pool.begin().await?;
        sqlx::query!("set transaction isolation level repeatable read, read only")
            .execute(&mut *transaction)
            .await?;
        Ok(transaction)
    }

    /// Whether Postgres answers now.
    pub async fn ping(&self) -> Result<(), StoreError> {
        in_time(PING_WAIT_MS, async {
            sqlx::query!("select 1 as one").fetch_one(&self.pool).await?;
            Ok(())
        })
        .await
    }

    /// What time it is by Postgres's clock.
    pub async fn now(&self) -> Result<DateTime<Utc>, StoreError> {
        in_time(PING_WAIT_MS, async {
            Ok(sqlx::query_scalar!(r#"select now() as "now!""#)
                .fetch_one(&self.pool)
                .await?)
        })
        .await
    }

    /// Closes every connection once it is returned. Waits without a bound for those in use.
    pub async fn close(&self) {
        self.pool.close().await;
    }

    pub(crate) fn pool(&self) -> &PgPool {
        &self.pool
    }
}

fn options(url: &str) -> Result<PgConnectOptions, StoreError> {
    Ok(PgConnectOptions::from_str(url)
        .map_err(StoreError::Url)?
        .application_name("tollgate")
        .options([
            ("statement_timeout", STATEMENT_TIMEOUT_MS.to_string()),
            (
                "idle_in_transaction_session_timeout",
                IDLE_TRANSACTION_TIMEOUT_MS.to_string(),
            ),
            ("timezone", "UTC".to_owned()),
            // Compiling a report takes longer than running it.
            ("jit", "off".to_owned()),
            // Filters are written as `$1 is null or column = $1`; a plan made for the actual values uses their index.
            ("plan_cache_mode", "force_custom_plan".to_owned()),
        ]))
}

/// Gives up on work that Postgres does not finish within `wait_ms`: a server that is stopped, or whose packets are lost,
/// breaks no connection and answers nothing.
pub(crate) async fn in_time<T>(
    wait_ms: u64,
    work: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    match timeout(Duration::from_millis(wait_ms), work).await {
        Ok(outcome) => outcome,
        Err(_) => Err(StoreError::Unavailable(late(wait_ms))),
    }
}

fn late(wait_ms: u64) -> sqlx::Error {
    let text = format!("no answer within {wait_ms} ms");
    sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, text))
}
