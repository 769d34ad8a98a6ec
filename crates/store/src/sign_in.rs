//! Failed sign-ins, counted by account and by address across all gateways.

use chrono::{DateTime, Utc};

use crate::{Store, StoreError, Transaction};

/// Old failures deleted in one go.
const OLD_BATCH: i64 = 1_000;

/// Keeps other sign-ins of the same subjects waiting until the transaction ends, so that counting and adding are one
/// step.
pub async fn lock(transaction: &mut Transaction, subjects: [&str; 2]) -> Result<(), StoreError> {
    let mut subjects = subjects;
    subjects.sort_unstable();
    for subject in subjects {
        sqlx::query!(
            "select pg_advisory_xact_lock(hashtextextended('tollgate.sign_in:' || $1, 0))",
            subject
        )
        .execute(&mut **transaction)
        .await?;
    }
    Ok(())
}

/// When the subject failed since `since`, newest first, at most `count` of them.
pub async fn failures(
    transaction: &mut Transaction,
    subject: &str,
    since: DateTime<Utc>,
    count: i64,
) -> Result<Vec<DateTime<Utc>>, StoreError> {
    Ok(sqlx::query_scalar!(
        "select failed_at from sign_in_failures
         where subject = $1 and failed_at > $2
         order by failed_at desc
         limit $3",
        subject,
        since,
        count,
    )
    .fetch_all(&mut **transaction)
    .await?)
}

/// Notes a failure.
pub async fn add_failure(
    transaction: &mut Transaction,
    subject: &str,
    failed_at: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query!(
        "insert into sign_in_failures (subject, failed_at) values ($1, $2)",
        subject,
        failed_at
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

/// Forgets every failure of a subject.
pub async fn forget(transaction: &mut Transaction, subject: &str) -> Result<(), StoreError> {
    sqlx::query!("delete from sign_in_failures where subject = $1", subject)
        .execute(&mut **transaction)
        .await?;
    Ok(())
}

/// Forgets one failure of a subject.
pub async fn forget_one(
    transaction: &mut Transaction,
    subject: &str,
    failed_at: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query!(
        "delete from sign_in_failures
         where ctid = (select ctid from sign_in_failures where subject = $1 and failed_at = $2 limit 1)",
        subject,
        failed_at,
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

impl Store {
    /// Deletes a batch of failures from before `before`; returns how many there were.
    pub async fn delete_sign_in_failures(&self, before: DateTime<Utc>) -> Result<u64, StoreError> {
        let done = sqlx::query!(
            "delete from sign_in_failures
             where ctid = any (array (select ctid from sign_in_failures where failed_at < $1 limit $2))",
            before,
            OLD_BATCH,
        )
        .execute(self.pool())
        .await?;
        Ok(done.rows_affected())
    }
}
