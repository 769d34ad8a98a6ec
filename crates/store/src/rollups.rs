//! Roll-ups against the entries they were made from: every total must be what the ledger adds up to.

use chrono::{DateTime, Utc};
use domain::ids::TenantId;
use domain::ledger::LATENCY_BOUNDS_MS;
use domain::periods::Span;
use uuid::Uuid;

use crate::{Store, StoreError, Transaction};

mod calendar;
mod rebuild;

pub use rebuild::rebuild;

/// Differences that are told at most, for each table.
pub const DIFFERENCES_MAX: i64 = 1_000;

/// A roll-up that is not the sum of its entries.
#[derive(Clone, Debug, PartialEq)]
pub struct RollupDifference {
    /// `settlement_rollups`, `rehearsal_rollups`, `tag_rollups` or `rejection_rollups`, or one of the sums by month and day:
    /// `settlement_month_rollups`, `rejection_month_rollups`, `settlement_day_rollups` or `rejection_day_rollups`.
    pub table: &'static str,
    /// Start of its 15 minutes, day or month.
    pub bucket_start: DateTime<Utc>,
    /// Whose it is.
    pub tenant_id: TenantId,
    /// The row as the entries add up (for sums by month and day, the 15-minute roll-ups); absent when there are none.
    pub from_entries: Option<serde_json::Value>,
    /// The row as it is stored; absent when it is missing.
    pub stored: Option<serde_json::Value>,
}

struct DifferenceRow {
    bucket_start: DateTime<Utc>,
    tenant_id: Uuid,
    from_entries: Option<serde_json::Value>,
    stored: Option<serde_json::Value>,
}

impl Store {
    /// Adds up every entry of `span` (on 15-minute boundaries) again and compares, in one snapshot. Reads the whole span.
    pub async fn rollup_differences(&self, span: Span) -> Result<Vec<RollupDifference>, StoreError> {
        let mut snapshot = self.begin_snapshot().await?;
        let Some(span) = kept_part(&mut snapshot, span).await? else {
            return Ok(Vec::new());
        };
        let settlements = sqlx::query_as!(
            DifferenceRow,
            r#"
        with summed as (
            select * from sum_settlements($2, $3, $1)
        ),
        stored as (
            select * from settlement_rollups where bucket_start >= $2 and bucket_start < $3
        )
        select
            bucket_start as "bucket_start!",
            tenant_id as "tenant_id!",
            to_jsonb(summed) as "from_entries?",
            to_jsonb(stored) as "stored?"
        from summed
        full join stored using (bucket_start, tenant_id, user_id, key_id, model, upstream_id, priority)
        where to_jsonb(summed) is distinct from to_jsonb(stored)
        order by bucket_start, tenant_id
        limit $4
            "#,
            &LATENCY_BOUNDS_MS[..],
            span.start,
            span.end,
            DIFFERENCES_MAX,
        )
        .fetch_all(&mut *snapshot)
        .await?;
        let rehearsals = sqlx::query_as!(
            DifferenceRow,
            r#"
        with summed as (
            select * from sum_rehearsals($1, $2)
        ),
        stored as (
            select * from rehearsal_rollups where bucket_start >= $1 and bucket_start < $2
        )
        select
            bucket_start as "bucket_start!",
            tenant_id as "tenant_id!",
            to_jsonb(summed) as "from_entries?",
            to_jsonb(stored) as "stored?"
        from summed
        full join stored using (bucket_start, scope_kind, limit_id, code, tenant_id, key_id)
        where to_jsonb(summed) is distinct from to_jsonb(stored)
        order by bucket_start, tenant_id
        limit $3
            "#,
            span.start,
            span.end,
            DIFFERENCES_MAX,
        )
        .fetch_all(&mut *snapshot)
        .await?;
        let tags = sqlx::query_as!(
            DifferenceRow,
            r#"
        with summed as (
            select * from sum_tags($1, $2)
        ),
        stored as (
            select * from tag_rollups where bucket_start >= $1 and bucket_start < $2
        )
        select
            bucket_start as "bucket_start!",
            tenant_id as "tenant_id!",
            to_jsonb(summed) as "from_entries?",
            to_jsonb(stored) as "stored?"
        from summed
        full join stored using (bucket_start, tenant_id, tag_name, tag_value, key_id)
        where to_jsonb(summed) is distinct from to_jsonb(stored)
        order by bucket_start, tenant_id
        limit $3
            "#,
            span.start,
            span.end,
            DIFFERENCES_MAX,
        )
        .fetch_all(&mut *snapshot)
        .await?;
        let rejections = sqlx::query_as!(
            DifferenceRow,
            r#"
        with summed as (
            select * from sum_rejections($1, $2)
        ),
        stored as (
            select * from rejection_rollups where bucket_start >= $1 and bucket_start < $2
        )
        select
            bucket_start as "bucket_start!",
            tenant_id as "tenant_id!",
            to_jsonb(summed) as "from_entries?",
            to_jsonb(stored) as "stored?"
        from summed
        full join stored
            using (bucket_start, tenant_id, user_id, key_id, model, priority, code, scope_kind, dimension)
        where to_jsonb(summed) is distinct from to_jsonb(stored)
        order by bucket_start, tenant_id
        limit $3
            "#,
            span.start,
            span.end,
            DIFFERENCES_MAX,
        )
        .fetch_all(&mut *snapshot)
        .await?;
        snapshot.commit().await?;
        let settlements = settlements.into_iter().map(named("settlement_rollups"));
        Ok(settlements
            .chain(rehearsals.into_iter().map(named("rehearsal_rollups")))
            .chain(tags.into_iter().map(named("tag_rollups")))
            .chain(rejections.into_iter().map(named("rejection_rollups")))
            .collect())
    }
}

/// The part of a span whose entries are kept, and stay until the transaction ends: who drops months waits for a table to
/// itself, and says beforehand from when on entries are there.
pub(crate) async fn kept_part(transaction: &mut Transaction, span: Span) -> Result<Option<Span>, StoreError> {
    sqlx::query!("lock table settlements, rejections in access share mode")
        .execute(&mut **transaction)
        .await?;
    let kept_from = sqlx::query_scalar!("select entries_from from ledger_retention")
        .fetch_optional(&mut **transaction)
        .await?;
    let start = kept_from.map_or(span.start, |kept_from| span.start.max(kept_from));
    Ok((start < span.end).then_some(Span { start, ..span }))
}

/// What differs, of this table.
fn named(table: &'static str) -> impl Fn(DifferenceRow) -> RollupDifference {
    move |row| RollupDifference {
        table,
        bucket_start: row.bucket_start,
        tenant_id: TenantId(row.tenant_id),
        from_entries: row.from_entries,
        stored: row.stored,
    }
}
