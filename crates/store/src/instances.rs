//! Live status of every gateway.

use chrono::{DateTime, Utc};
use domain::instances::InstanceStatus;
use sqlx::PgConnection;

use crate::{Store, StoreError, in_time};

/// How long a gateway's word about itself may take to be written or removed, in milliseconds.
const REPORT_WAIT_MS: u64 = 2_000;
/// The most gateways that are listed.
pub const INSTANCES_MAX: i64 = 1_000;

/// One gateway.
#[derive(Clone, Debug)]
pub struct Instance {
    /// Its name.
    pub instance: String,
    /// When it last wrote.
    pub seen_at: DateTime<Utc>,
    /// What it said.
    pub status: InstanceStatus,
}

/// How Postgres archives its log, from which it can be restored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogArchiving {
    /// When it last succeeded.
    pub last_archived_at: Option<DateTime<Utc>>,
    /// When it last failed.
    pub last_failed_at: Option<DateTime<Utc>>,
}

impl Store {
    /// Writes a gateway's status, and answers by Postgres's clock.
    pub async fn report_instance(
        &self,
        instance: &str,
        seen_at: DateTime<Utc>,
        status: &InstanceStatus,
    ) -> Result<DateTime<Utc>, StoreError> {
        let status = serde_json::to_value(status).map_err(|_| StoreError::Value {
            column: "instances.status",
        })?;
        in_time(REPORT_WAIT_MS, async {
            Ok(sqlx::query_scalar!(
                "insert into instances (instance, seen_at, status) values ($1, $2, $3)
             on conflict (instance) do update set seen_at = excluded.seen_at, status = excluded.status
             returning clock_timestamp() as \"at!\"",
                instance,
                seen_at,
                status,
            )
            .fetch_one(self.pool())
            .await?)
        })
        .await
    }

    /// Takes a gateway off the list when it has stopped in good order.
    pub async fn remove_instance(&self, instance: &str) -> Result<(), StoreError> {
        in_time(REPORT_WAIT_MS, async {
            sqlx::query!("delete from instances where instance = $1", instance)
                .execute(self.pool())
                .await?;
            Ok(())
        })
        .await
    }

    /// What Postgres itself says of archiving its log; `None` where it archives nothing.
    pub async fn log_archiving(&self) -> Result<Option<LogArchiving>, StoreError> {
        let row = sqlx::query!(
            r#"select current_setting('archive_mode') <> 'off' as "is_on!", last_archived_time, last_failed_time
               from pg_stat_archiver"#
        )
        .fetch_one(self.pool())
        .await?;
        Ok(row.is_on.then_some(LogArchiving {
            last_archived_at: row.last_archived_time,
            last_failed_at: row.last_failed_time,
        }))
    }

    /// Gateways, the most recently seen first; at most [`INSTANCES_MAX`].
    pub async fn instances(&self) -> Result<Vec<Instance>, StoreError> {
        let mut connection = self.pool().acquire().await?;
        list(&mut connection).await
    }
}

/// The same inside the caller's snapshot.
pub(crate) async fn list(connection: &mut PgConnection) -> Result<Vec<Instance>, StoreError> {
    let rows = sqlx::query!(
        "select instance, seen_at, status from instances order by seen_at desc limit $1",
        INSTANCES_MAX,
    )
    .fetch_all(connection)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Instance {
            instance: row.instance,
            seen_at: row.seen_at,
            // An older or newer gateway may say something else; its presence still counts.
            status: serde_json::from_value(row.status).unwrap_or_default(),
        })
        .collect())
}
