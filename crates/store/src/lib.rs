//! The only door to Postgres: one module per noun, checked queries, rows turned into domain values here.

pub mod adjustments;
pub mod audit;
pub mod budgets;
pub mod entries;
pub mod error;
pub mod instances;
pub mod keys;
pub mod ledger;
pub mod limits;
pub mod models;
pub mod one_time_links;
pub mod people;
pub mod plans;
pub mod policy;
pub mod random;
pub mod rejections;
pub mod reports;
pub mod rollups;
pub mod sealing;
pub mod sessions;
pub mod settings;
pub mod settlements;
pub mod sign_in;
pub mod tenants;
pub mod upstreams;

use std::str::FromStr;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};

pub use error::StoreError;

/// Connections of one process at most. The request path never waits for one.
pub const CONNECTIONS_MAX: u32 = 16;
/// How long a caller waits for a free connection, in milliseconds.
const ACQUIRE_TIMEOUT_MS: u64 = 3_000;
/// How long one statement may run, in milliseconds. Reports over many rows stay well below it.
const STATEMENT_TIMEOUT_MS: u64 = 60_000;

/// The schema's changes, applied on start under Postgres's advisory lock.
pub static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("../../migrations");

/// A transaction that is rolled back unless committed.
pub type Transaction = sqlx::Transaction<'static, sqlx::Postgres>;

/// Postgres, as the rest of the program knows it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    pool: PgPool,
}

impl Store {
    /// Prepares connections to `url` without making one, so that a process can start while Postgres is away.
    pub fn connect_lazily(url: &str) -> Result<Self, StoreError> {
        let options = PgConnectOptions::from_str(url)
            .map_err(StoreError::Url)?
            .application_name("tollgate")
            .options([
                ("statement_timeout", STATEMENT_TIMEOUT_MS.to_string()),
                ("timezone", "UTC".to_owned()),
                // Filters are written as `$1 is null or column = $1`; a plan made for the actual values uses their index.
                ("plan_cache_mode", "force_custom_plan".to_owned()),
            ]);
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS_MAX)
            .acquire_timeout(Duration::from_millis(ACQUIRE_TIMEOUT_MS))
            .connect_lazy_with(options);
        Ok(Self { pool })
    }

    /// Brings the schema up to date. Safe to call from several processes at once.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        MIGRATOR.run(&self.pool).await.map_err(StoreError::Migration)
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
        sqlx::query!("select 1 as one").fetch_one(&self.pool).await?;
        Ok(())
    }

    /// Closes every connection once it is returned.
    pub async fn close(&self) {
        self.pool.close().await;
    }

    pub(crate) fn pool(&self) -> &PgPool {
        &self.pool
    }
}
