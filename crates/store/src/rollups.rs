//! Roll-ups against the entries they were made from: every total must be what the ledger adds up to.

use chrono::{DateTime, Utc};
use domain::ids::TenantId;
use domain::ledger::LATENCY_BOUNDS_MS;
use domain::periods::Span;
use uuid::Uuid;

use crate::{Store, StoreError};

/// Differences that are told at most, for each table.
pub const DIFFERENCES_MAX: i64 = 1_000;

/// A roll-up that is not the sum of its entries.
#[derive(Clone, Debug, PartialEq)]
pub struct RollupDifference {
    /// `settlement_rollups`, `rehearsal_rollups`, `tag_rollups` or `rejection_rollups`.
    pub table: &'static str,
    /// Start of its 15 minutes.
    pub bucket_start: DateTime<Utc>,
    /// Whose it is.
    pub tenant_id: TenantId,
    /// The row as the entries add up; absent when there are none.
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
        let settlements = sqlx::query_as!(
            DifferenceRow,
            r#"
        with entries as (
            select
                date_bin('15 minutes', admitted_at, timestamptz '2000-01-01 00:00:00+00') as bucket_start,
                tenant_id, coalesce(user_id, '') as user_id, key_id, coalesce(model, '') as model,
                coalesce(upstream_id, '00000000-0000-0000-0000-000000000000') as upstream_id, priority,
                1 as requests, (outcome not in ('completed', 'client_closed'))::integer as failed_requests,
                is_unpriced::integer as unpriced_requests,
                (usage_source = 'estimated')::integer as estimated_requests,
                input_fresh_tokens, cache_read_tokens, cache_write_5m_tokens, cache_write_1h_tokens, output_tokens,
                reasoning_tokens, expected_input_tokens, expected_output_tokens, expected_cost_nanos, cost_nanos,
                overrun_nanos, 0 as adjustments, 0::bigint as adjusted_input_tokens,
                0::bigint as adjusted_output_tokens, 0::bigint as adjusted_cost_nanos, queue_ms, total_ms,
                width_bucket(total_ms - 1, $1::bigint[]) as total_slot,
                width_bucket(first_byte_ms - 1, $1::bigint[]) as first_byte_slot
            from settlements
            where admitted_at >= $2 and admitted_at < $3
            union all
            select
                date_bin('15 minutes', admitted_at, timestamptz '2000-01-01 00:00:00+00'),
                tenant_id, coalesce(user_id, ''), coalesce(key_id, '00000000-0000-0000-0000-000000000000'),
                coalesce(model, ''), coalesce(upstream_id, '00000000-0000-0000-0000-000000000000'), priority,
                0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, input_tokens, output_tokens, cost_nanos, 0, 0, null, null
            from adjustments
            where admitted_at >= $2 and admitted_at < $3
        ),
        summed as (
            select
                bucket_start, tenant_id, user_id, key_id, model, upstream_id, priority,
                sum(requests) as requests, sum(failed_requests) as failed_requests,
                sum(unpriced_requests) as unpriced_requests, sum(estimated_requests) as estimated_requests,
                sum(input_fresh_tokens) as input_fresh_tokens, sum(cache_read_tokens) as cache_read_tokens,
                sum(cache_write_5m_tokens) as cache_write_5m_tokens, sum(cache_write_1h_tokens) as cache_write_1h_tokens,
                sum(output_tokens) as output_tokens, sum(reasoning_tokens) as reasoning_tokens,
                sum(expected_input_tokens) as expected_input_tokens,
                sum(expected_output_tokens) as expected_output_tokens,
                sum(expected_cost_nanos) as expected_cost_nanos, sum(cost_nanos) as cost_nanos,
                sum(overrun_nanos) as overrun_nanos, sum(adjustments) as adjustments,
                sum(adjusted_input_tokens) as adjusted_input_tokens,
                sum(adjusted_output_tokens) as adjusted_output_tokens, sum(adjusted_cost_nanos) as adjusted_cost_nanos,
                sum(queue_ms) as queue_ms, sum(total_ms) as total_ms,
                array[
                    count(*) filter (where total_slot = 0), count(*) filter (where total_slot = 1),
                    count(*) filter (where total_slot = 2), count(*) filter (where total_slot = 3),
                    count(*) filter (where total_slot = 4), count(*) filter (where total_slot = 5),
                    count(*) filter (where total_slot = 6), count(*) filter (where total_slot = 7),
                    count(*) filter (where total_slot = 8), count(*) filter (where total_slot = 9),
                    count(*) filter (where total_slot = 10), count(*) filter (where total_slot = 11),
                    count(*) filter (where total_slot = 12), count(*) filter (where total_slot = 13),
                    count(*) filter (where total_slot = 14), count(*) filter (where total_slot = 15)] as total_ms_histogram,
                array[
                    count(*) filter (where first_byte_slot = 0), count(*) filter (where first_byte_slot = 1),
                    count(*) filter (where first_byte_slot = 2), count(*) filter (where first_byte_slot = 3),
                    count(*) filter (where first_byte_slot = 4), count(*) filter (where first_byte_slot = 5),
                    count(*) filter (where first_byte_slot = 6), count(*) filter (where first_byte_slot = 7),
                    count(*) filter (where first_byte_slot = 8), count(*) filter (where first_byte_slot = 9),
                    count(*) filter (where first_byte_slot = 10), count(*) filter (where first_byte_slot = 11),
                    count(*) filter (where first_byte_slot = 12), count(*) filter (where first_byte_slot = 13),
                    count(*) filter (where first_byte_slot = 14), count(*) filter (where first_byte_slot = 15)] as first_byte_ms_histogram
            from entries
            group by 1, 2, 3, 4, 5, 6, 7
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
        with verdicts as (
            select
                date_bin('15 minutes', admitted_at, timestamptz '2000-01-01 00:00:00+00') as bucket_start,
                split_part(verdict ->> 'scope', ':', 1) as scope_kind, (verdict ->> 'limit_id')::uuid as limit_id,
                verdict ->> 'code' as code, tenant_id, key_id, id
            from settlements, jsonb_array_elements(rehearsed) as verdict
            where admitted_at >= $1 and admitted_at < $2 and rehearsed <> '[]'
        ),
        summed as (
            select
                bucket_start, coalesce(scope_kind, '') as scope_kind,
                coalesce(limit_id, '00000000-0000-0000-0000-000000000000') as limit_id, coalesce(code, '') as code,
                tenant_id, key_id, count(distinct id) as requests
            from verdicts
            group by grouping sets (
                (bucket_start, tenant_id, key_id),
                (bucket_start, tenant_id, key_id, verdicts.scope_kind),
                (bucket_start, tenant_id, key_id, verdicts.scope_kind, verdicts.limit_id, verdicts.code))
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
            select
                date_bin('15 minutes', admitted_at, timestamptz '2000-01-01 00:00:00+00') as bucket_start, tenant_id,
                tag.key as tag_name, tag.value as tag_value, key_id, count(*) as requests,
                count(*) filter (where outcome not in ('completed', 'client_closed')) as failed_requests,
                sum(input_fresh_tokens) as input_fresh_tokens, sum(cache_read_tokens) as cache_read_tokens,
                sum(cache_write_5m_tokens) as cache_write_5m_tokens, sum(cache_write_1h_tokens) as cache_write_1h_tokens,
                sum(output_tokens) as output_tokens, sum(reasoning_tokens) as reasoning_tokens,
                sum(cost_nanos) as cost_nanos
            from settlements, jsonb_each_text(tags) as tag
            where admitted_at >= $1 and admitted_at < $2 and tags <> '{}'
            group by 1, 2, 3, 4, 5
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
            select
                date_bin('15 minutes', refused_at, timestamptz '2000-01-01 00:00:00+00') as bucket_start,
                tenant_id, coalesce(user_id, '') as user_id, key_id, left(coalesce(model, ''), 200) as model, priority,
                code, coalesce(split_part(scope, ':', 1), '') as scope_kind, coalesce(dimension, '') as dimension,
                sum(refusal_count) as refusals, sum(early_count) as early_refusals,
                max(caller_retries) as caller_retries_max
            from rejections
            where refused_at >= $1 and refused_at < $2
            group by 1, 2, 3, 4, 5, 6, 7, 8, 9
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
        let named = |table| {
            move |row: DifferenceRow| RollupDifference {
                table,
                bucket_start: row.bucket_start,
                tenant_id: TenantId(row.tenant_id),
                from_entries: row.from_entries,
                stored: row.stored,
            }
        };
        let settlements = settlements.into_iter().map(named("settlement_rollups"));
        Ok(settlements
            .chain(rehearsals.into_iter().map(named("rehearsal_rollups")))
            .chain(tags.into_iter().map(named("tag_rollups")))
            .chain(rejections.into_iter().map(named("rejection_rollups")))
            .collect())
    }
}
