//! Roll-ups made anew from their entries.

use domain::ledger::LATENCY_BOUNDS_MS;
use domain::periods::Span;

use super::kept_part;
use crate::{Store, StoreError, Transaction};

/// Replaces every 15-minute roll-up of `span` (on 15-minute boundaries) by what its entries add up to; the sums by month
/// and day follow. What has no entries any more stays as it is. Entries that are shipped meanwhile wait. To be called span by
/// span: an hour of a busy installation is some ten thousand rows.
pub async fn rebuild(transaction: &mut Transaction, span: Span) -> Result<(), StoreError> {
    let Some(span) = kept_part(transaction, span).await? else {
        return Ok(());
    };
    sqlx::query!(
        "lock table settlement_rollups, rehearsal_rollups, tag_rollups, rejection_rollups
             in share row exclusive mode"
    )
    .execute(&mut **transaction)
    .await?;
    for removed in [
        sqlx::query!(
            "delete from settlement_rollups where bucket_start >= $1 and bucket_start < $2",
            span.start,
            span.end,
        ),
        sqlx::query!(
            "delete from rehearsal_rollups where bucket_start >= $1 and bucket_start < $2",
            span.start,
            span.end,
        ),
        sqlx::query!(
            "delete from tag_rollups where bucket_start >= $1 and bucket_start < $2",
            span.start,
            span.end,
        ),
        sqlx::query!(
            "delete from rejection_rollups where bucket_start >= $1 and bucket_start < $2",
            span.start,
            span.end,
        ),
        sqlx::query!(
            "insert into settlement_rollups select * from sum_settlements($1, $2, $3)",
            span.start,
            span.end,
            &LATENCY_BOUNDS_MS[..],
        ),
        sqlx::query!(
            "insert into rehearsal_rollups select * from sum_rehearsals($1, $2)",
            span.start,
            span.end,
        ),
        sqlx::query!(
            "insert into tag_rollups select * from sum_tags($1, $2)",
            span.start,
            span.end,
        ),
        sqlx::query!(
            "insert into rejection_rollups select * from sum_rejections($1, $2)",
            span.start,
            span.end,
        ),
        // Sums of which nothing is left.
        sqlx::query!(
            "delete from settlement_month_rollups
                 where month = date_trunc('month', billing_day($1))::date and requests = 0 and adjustments = 0",
            span.start,
        ),
        sqlx::query!(
            "delete from settlement_day_rollups
                 where day between billing_day($1) and billing_day($2)
                     and not exists (
                         select from settlement_rollups as rollup
                         join billing_days as first on first.day = settlement_day_rollups.day
                         join billing_days as following on following.day = first.day + 1
                         where rollup.tenant_id = settlement_day_rollups.tenant_id
                             and rollup.model = settlement_day_rollups.model
                             and rollup.priority = settlement_day_rollups.priority
                             and rollup.bucket_start >= first.starts_at
                             and rollup.bucket_start < following.starts_at)
                     and (requests, tokens, charged_nanos) = (0, 0, 0)",
            span.start,
            span.end,
        ),
        sqlx::query!(
            "delete from rejection_day_rollups
                 where day between billing_day($1) and billing_day($2) and refusals = 0",
            span.start,
            span.end,
        ),
        sqlx::query!(
            "delete from rejection_month_rollups
                 where month = date_trunc('month', billing_day($1))::date and refusals = 0",
            span.start,
        ),
    ] {
        removed.execute(&mut **transaction).await?;
    }
    Ok(())
}

impl Store {
    /// [`rebuild`] in a transaction of its own.
    pub async fn rebuild_rollups(&self, span: Span) -> Result<(), StoreError> {
        let mut transaction = self.begin().await?;
        rebuild(&mut transaction, span).await?;
        transaction.commit().await?;
        Ok(())
    }
}
