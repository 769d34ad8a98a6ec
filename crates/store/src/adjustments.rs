//! Signed corrections: appended like every entry, counted in budgets, roll-ups and reports.

use domain::ids::{AdjustmentId, KeyId, TenantId, UpstreamId};
use domain::ledger::{Adjustment, LATENCY_BOUNDS_MS};
use domain::money::Nanos;
use domain::periods::Span;
use uuid::Uuid;

use crate::policy::parse;
use crate::{Store, StoreError, Transaction};

/// The most adjustments that are listed.
pub const ADJUSTMENTS_MAX: i64 = 200;

/// Appends an adjustment and adds it to the roll-up of its instant, inside the caller's transaction (which also writes the
/// audit log). `false` when it is there already: then nothing is counted twice.
pub async fn insert_adjustment(transaction: &mut Transaction, adjustment: &Adjustment) -> Result<bool, StoreError> {
    let inserted = sqlx::query_scalar!(
        r#"
        with inserted as (
            insert into adjustments (
                id, admitted_at, created_at, tenant_id, user_id, key_id, model, upstream_id, priority, input_tokens,
                output_tokens, cost_nanos, reason, author, reference)
            values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
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
    )
    .fetch_one(&mut **transaction)
    .await?;
    Ok(inserted > 0)
}

const HISTOGRAM_SLOTS: i32 = LATENCY_BOUNDS_MS.len() as i32 + 1;

impl Store {
    /// Adjustments that count in `span`, the newest first; at most [`ADJUSTMENTS_MAX`]. All tenants' without `tenant`.
    pub async fn adjustments(&self, span: Span, tenant: Option<TenantId>) -> Result<Vec<Adjustment>, StoreError> {
        let rows = sqlx::query!(
            "select id, admitted_at, created_at, tenant_id, user_id, key_id, model, upstream_id, priority, input_tokens,
                    output_tokens, cost_nanos, reason, author, reference
             from adjustments
             where admitted_at >= $1 and admitted_at < $2 and ($3::uuid is null or tenant_id = $3)
             order by created_at desc, id desc
             limit $4",
            span.start,
            span.end,
            tenant.map(Uuid::from),
            ADJUSTMENTS_MAX,
        )
        .fetch_all(self.pool())
        .await?;
        rows.into_iter()
            .map(|row| {
                Ok(Adjustment {
                    id: AdjustmentId(row.id),
                    admitted_at: row.admitted_at,
                    created_at: row.created_at,
                    tenant_id: TenantId(row.tenant_id),
                    user_id: row.user_id,
                    key_id: row.key_id.map(KeyId),
                    model: row.model.map(Into::into),
                    upstream_id: row.upstream_id.map(UpstreamId),
                    priority: parse(&row.priority, "adjustments.priority")?,
                    input_tokens: row.input_tokens,
                    output_tokens: row.output_tokens,
                    cost_nanos: Nanos(row.cost_nanos),
                    reason: row.reason,
                    author: row.author,
                    reference: row.reference,
                })
            })
            .collect()
    }
}
