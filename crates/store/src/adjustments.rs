//! Signed corrections: appended like every entry, counted in budgets, roll-ups and reports.

use chrono::{DateTime, Utc};
use domain::ids::{AdjustmentId, PersonId, RequestId, TenantId};
use domain::ledger::{Adjustment, LATENCY_BOUNDS_MS};
use domain::periods::Span;
use serde_json::Value;
use uuid::Uuid;

use crate::entries::{EntryRow, Named, page_places};
use crate::{Store, StoreError, Transaction};

/// Adjustments of one request at most.
pub const ADJUSTMENTS_OF_REQUEST_MAX: i64 = 100;

/// Which adjustments to list. Absent parts let everything through; present ones must all match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdjustmentFilter {
    /// Of this tenant.
    pub tenant: Option<TenantId>,
    /// Of this person: under their name or with one of their keys.
    pub owner: Option<PersonId>,
    /// That count in this span.
    pub span: Option<Span>,
}

/// Where a page ended: the next one has adjustments that were made before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdjustmentCursor {
    /// When the last one was made.
    pub created_at: DateTime<Utc>,
    /// Which one it is.
    pub id: AdjustmentId,
}

/// Adjustments of a list, the latest made first.
#[derive(Clone, Debug, PartialEq)]
pub struct AdjustmentPage {
    /// At most as many as were asked for and [`crate::entries::PAGE_ENTRIES_MAX`].
    pub adjustments: Vec<Named<Adjustment>>,
    /// Where the next page starts; `None` on the last one.
    pub next: Option<AdjustmentCursor>,
}

/// How long an adjustment waits for others, in milliseconds.
const LOCK_WAIT_MS: u32 = 3_000;

/// Lets nobody else adjust the ledger until the transaction ends, and tells gateways, once it is committed, to read again
/// what budgets have spent. Before anything is read on which an adjustment depends.
pub async fn lock(transaction: &mut Transaction) -> Result<(), StoreError> {
    // Whoever changes the policy waits for this, and must not wait for those who make roll-ups anew.
    sqlx::query!(
        r#"select set_config('lock_timeout', $1, true) as "set!""#,
        LOCK_WAIT_MS.to_string(),
    )
    .fetch_one(&mut **transaction)
    .await?;
    // The trigger stamps the version.
    sqlx::query!("update adjustment_mark set policy_version = policy_version")
        .execute(&mut **transaction)
        .await?;
    Ok(())
}

/// The adjustment with this id, whenever it counts.
pub async fn find(transaction: &mut Transaction, id: AdjustmentId) -> Result<Option<Adjustment>, StoreError> {
    let found = sqlx::query_scalar!(
        r#"select to_jsonb(adjustments) as "entry!" from adjustments where id = $1"#,
        Uuid::from(id),
    )
    .fetch_optional(&mut **transaction)
    .await?;
    found.map(adjustment).transpose()
}

/// The adjustments of a request, in the order in which they were made. Take the [`lock`] first.
pub async fn of_request(transaction: &mut Transaction, id: RequestId) -> Result<Vec<Adjustment>, StoreError> {
    let rows = sqlx::query_scalar!(
        r#"
        select to_jsonb(adjustments) as "entry!"
        from adjustments
        where request_id = $1
        order by created_at, id
        "#,
        Uuid::from(id),
    )
    .fetch_all(&mut **transaction)
    .await?;
    rows.into_iter().map(adjustment).collect()
}

fn adjustment(entry: Value) -> Result<Adjustment, StoreError> {
    serde_json::from_value(entry).map_err(|_| StoreError::Value { column: "adjustments" })
}

/// Appends an adjustment and adds it to the roll-up of its instant, inside the caller's transaction (which also writes the
/// audit log). `false` when it is there already: then nothing is counted twice.
pub async fn insert_adjustment(transaction: &mut Transaction, adjustment: &Adjustment) -> Result<bool, StoreError> {
    let inserted = sqlx::query_scalar!(
        r#"
        with inserted as (
            insert into adjustments (
                id, admitted_at, created_at, tenant_id, user_id, key_id, model, upstream_id, priority, input_tokens,
                output_tokens, cost_nanos, reason, author, reference, request_id)
            values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $17)
            on conflict do nothing
            returning *
        ),
        rolled as (
            insert into settlement_rollups as kept (
                bucket_start, tenant_id, user_id, key_id, model, upstream_id, priority, adjustments,
                adjusted_input_tokens, adjusted_output_tokens, adjusted_cost_nanos, total_ms_histogram,
                first_byte_ms_histogram)
            select
                date_bin('15 minutes', admitted_at, timestamptz '2000-01-01 00:00:00+00'), tenant_id,
                coalesce(user_id, ''), coalesce(key_id, '00000000-0000-0000-0000-000000000000'), coalesce(model, ''),
                coalesce(upstream_id, '00000000-0000-0000-0000-000000000000'), priority, 1, input_tokens, output_tokens,
                cost_nanos, array_fill(0::bigint, array[$16::integer]), array_fill(0::bigint, array[$16::integer])
            from inserted
            on conflict (bucket_start, tenant_id, key_id, user_id, model, upstream_id, priority) do update set
                adjustments = kept.adjustments + excluded.adjustments,
                adjusted_input_tokens = kept.adjusted_input_tokens + excluded.adjusted_input_tokens,
                adjusted_output_tokens = kept.adjusted_output_tokens + excluded.adjusted_output_tokens,
                adjusted_cost_nanos = kept.adjusted_cost_nanos + excluded.adjusted_cost_nanos
        )
        select count(*) as "count!" from inserted
        "#,
        Uuid::from(adjustment.id),
        adjustment.admitted_at,
        adjustment.created_at,
        Uuid::from(adjustment.tenant_id),
        adjustment.user_id,
        adjustment.key_id.map(Uuid::from),
        adjustment.model.as_deref(),
        adjustment.upstream_id.map(Uuid::from),
        adjustment.priority.as_str(),
        adjustment.input_tokens,
        adjustment.output_tokens,
        adjustment.cost_nanos.0,
        adjustment.reason,
        adjustment.author,
        adjustment.reference,
        HISTOGRAM_SLOTS,
        adjustment.request_id.map(Uuid::from),
    )
    .fetch_one(&mut **transaction)
    .await?;
    Ok(inserted > 0)
}

const HISTOGRAM_SLOTS: i32 = LATENCY_BOUNDS_MS.len() as i32 + 1;

impl Store {
    /// Adjustments that match, the latest made first, from `after` on; at most `adjustments_max`, itself at most
    /// [`crate::entries::PAGE_ENTRIES_MAX`].
    pub async fn adjustments(
        &self,
        filter: &AdjustmentFilter,
        after: Option<AdjustmentCursor>,
        adjustments_max: u32,
    ) -> Result<AdjustmentPage, StoreError> {
        let places = page_places(adjustments_max);
        let rows = sqlx::query_as!(
            EntryRow,
            r#"
            with page as (
                select *
                from adjustments
                where ($1::timestamptz is null or admitted_at >= $1)
                    and ($2::timestamptz is null or admitted_at < $2)
                    and ($3::timestamptz is null or (created_at, id) < ($3, $4::uuid))
                    and ($5::uuid is null or tenant_id = $5)
                    and ($6::uuid is null or user_id = $6::text
                        or key_id in (select keys.id from keys where owner_id = $6))
                order by created_at desc, id desc
                limit $7
            )
            select
                to_jsonb(page) as "entry!",
                tenants.name as "tenant_name?",
                keys.name as "key_name?",
                keys.public_id as "key_public_id?",
                people.name as "user_name?"
            from page
            left join tenants on tenants.id = page.tenant_id
            left join keys on keys.id = page.key_id
            left join people on people.id::text = page.user_id
            order by page.created_at desc, page.id desc
            "#,
            filter.span.map(|span| span.start),
            filter.span.map(|span| span.end),
            after.map(|cursor| cursor.created_at),
            after.map(|cursor| Uuid::from(cursor.id)),
            filter.tenant.map(Uuid::from),
            filter.owner.map(Uuid::from),
            places as i64 + 1,
        )
        .fetch_all(self.pool())
        .await?;
        let has_more = rows.len() > places;
        let adjustments: Vec<Named<Adjustment>> = rows
            .into_iter()
            .take(places)
            .map(|row| row.into_named("adjustments"))
            .collect::<Result<_, _>>()?;
        let last = adjustments.last().filter(|_| has_more);
        let next = last.map(|last| AdjustmentCursor {
            created_at: last.entry.created_at,
            id: last.entry.id,
        });
        Ok(AdjustmentPage { adjustments, next })
    }

    /// The adjustments of a request, in the order in which they were made.
    pub async fn adjustments_of_request(&self, id: RequestId) -> Result<Vec<Adjustment>, StoreError> {
        of_request(&mut self.begin_snapshot().await?, id).await
    }
}
