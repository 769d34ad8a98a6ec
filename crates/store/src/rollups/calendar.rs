//! The sums by month and day against the 15-minute roll-ups that they follow.

use chrono::NaiveDate;

use super::{DIFFERENCES_MAX, DifferenceRow, RollupDifference, named};
use crate::{Store, StoreError};

impl Store {
    /// Adds up the 15-minute roll-ups of the month that begins with `first_day` again, by month and by day, and compares, in
    /// one snapshot. Nothing where the calendar has no such month.
    pub async fn calendar_differences(&self, first_day: NaiveDate) -> Result<Vec<RollupDifference>, StoreError> {
        let mut snapshot = self.begin_snapshot().await?;
        let months = sqlx::query_as!(
            DifferenceRow,
            r#"
        with bounds as (
            select starts_at, (select starts_at from billing_days where day = $1::date + interval '1 month') as ends_at
            from billing_days
            where day = $1
        ),
        summed as (
            select
                $1::date as month, case grouping(key_id) when 0 then 'key' else 'tenant' end as grain, tenant_id,
                coalesce(user_id, '') as user_id,
                coalesce(key_id, '00000000-0000-0000-0000-000000000000') as key_id, model, priority,
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
                    sum(total_ms_histogram[1]), sum(total_ms_histogram[2]), sum(total_ms_histogram[3]),
                    sum(total_ms_histogram[4]), sum(total_ms_histogram[5]), sum(total_ms_histogram[6]),
                    sum(total_ms_histogram[7]), sum(total_ms_histogram[8]), sum(total_ms_histogram[9]),
                    sum(total_ms_histogram[10]), sum(total_ms_histogram[11]), sum(total_ms_histogram[12]),
                    sum(total_ms_histogram[13]), sum(total_ms_histogram[14]), sum(total_ms_histogram[15]),
                    sum(total_ms_histogram[16])] as total_ms_histogram,
                array[
                    sum(first_byte_ms_histogram[1]), sum(first_byte_ms_histogram[2]), sum(first_byte_ms_histogram[3]),
                    sum(first_byte_ms_histogram[4]), sum(first_byte_ms_histogram[5]), sum(first_byte_ms_histogram[6]),
                    sum(first_byte_ms_histogram[7]), sum(first_byte_ms_histogram[8]), sum(first_byte_ms_histogram[9]),
                    sum(first_byte_ms_histogram[10]), sum(first_byte_ms_histogram[11]),
                    sum(first_byte_ms_histogram[12]), sum(first_byte_ms_histogram[13]),
                    sum(first_byte_ms_histogram[14]), sum(first_byte_ms_histogram[15]),
                    sum(first_byte_ms_histogram[16])] as first_byte_ms_histogram
            from settlement_rollups, bounds
            where bucket_start >= starts_at and bucket_start < ends_at
            group by grouping sets (
                (tenant_id, user_id, key_id, model, priority), (tenant_id, model, priority))
        ),
        stored as (
            select settlement_month_rollups.* from settlement_month_rollups, bounds where month = $1
        )
        select
            (select starts_at from bounds) as "bucket_start!",
            tenant_id as "tenant_id!",
            to_jsonb(summed) as "from_entries?",
            to_jsonb(stored) as "stored?"
        from summed
        full join stored using (month, grain, tenant_id, user_id, key_id, model, priority)
        where to_jsonb(summed) is distinct from to_jsonb(stored)
        order by tenant_id
        limit $2
            "#,
            first_day,
            DIFFERENCES_MAX,
        )
        .fetch_all(&mut *snapshot)
        .await?;
        let refused_months = sqlx::query_as!(
            DifferenceRow,
            r#"
        with bounds as (
            select starts_at, (select starts_at from billing_days where day = $1::date + interval '1 month') as ends_at
            from billing_days
            where day = $1
        ),
        summed as (
            select
                $1::date as month, case grouping(key_id) when 0 then 'key' else 'tenant' end as grain, tenant_id,
                coalesce(user_id, '') as user_id,
                coalesce(key_id, '00000000-0000-0000-0000-000000000000') as key_id, model, priority, code,
                sum(refusals) as refusals
            from rejection_rollups, bounds
            where bucket_start >= starts_at and bucket_start < ends_at
            group by grouping sets (
                (tenant_id, user_id, key_id, model, priority, code), (tenant_id, model, priority, code))
        ),
        stored as (
            select rejection_month_rollups.* from rejection_month_rollups, bounds where month = $1
        )
        select
            (select starts_at from bounds) as "bucket_start!",
            tenant_id as "tenant_id!",
            to_jsonb(summed) as "from_entries?",
            to_jsonb(stored) as "stored?"
        from summed
        full join stored using (month, grain, tenant_id, user_id, key_id, model, priority, code)
        where to_jsonb(summed) is distinct from to_jsonb(stored)
        order by tenant_id
        limit $2
            "#,
            first_day,
            DIFFERENCES_MAX,
        )
        .fetch_all(&mut *snapshot)
        .await?;
        let days = sqlx::query_as!(
            DifferenceRow,
            r#"
        with days as (
            select day, starts_at, lead(starts_at) over (order by day) as ends_at
            from billing_days
            where day >= $1 and day <= $1::date + interval '1 month'
        ),
        summed as (
            select
                day, tenant_id, model, priority, sum(requests) as requests,
                sum(input_fresh_tokens + cache_read_tokens + cache_write_5m_tokens + cache_write_1h_tokens
                    + output_tokens + adjusted_input_tokens + adjusted_output_tokens) as tokens,
                sum(cost_nanos + adjusted_cost_nanos) as charged_nanos
            from days
            join settlement_rollups on bucket_start >= starts_at and bucket_start < ends_at
            group by day, tenant_id, model, priority
        ),
        stored as (
            select * from settlement_day_rollups where day >= $1 and day < $1::date + interval '1 month'
        )
        select
            (select starts_at from days where days.day = coalesce(summed.day, stored.day)) as "bucket_start!",
            tenant_id as "tenant_id!",
            to_jsonb(summed) as "from_entries?",
            to_jsonb(stored) as "stored?"
        from summed
        full join stored using (day, tenant_id, model, priority)
        where to_jsonb(summed) is distinct from to_jsonb(stored)
        order by day, tenant_id
        limit $2
            "#,
            first_day,
            DIFFERENCES_MAX,
        )
        .fetch_all(&mut *snapshot)
        .await?;
        let refused_days = sqlx::query_as!(
            DifferenceRow,
            r#"
        with days as (
            select day, starts_at, lead(starts_at) over (order by day) as ends_at
            from billing_days
            where day >= $1 and day <= $1::date + interval '1 month'
        ),
        summed as (
            select day, tenant_id, model, priority, sum(refusals) as refusals
            from days
            join rejection_rollups on bucket_start >= starts_at and bucket_start < ends_at
            where code <> 'replayed'
            group by day, tenant_id, model, priority
        ),
        stored as (
            select * from rejection_day_rollups where day >= $1 and day < $1::date + interval '1 month'
        )
        select
            (select starts_at from days where days.day = coalesce(summed.day, stored.day)) as "bucket_start!",
            tenant_id as "tenant_id!",
            to_jsonb(summed) as "from_entries?",
            to_jsonb(stored) as "stored?"
        from summed
        full join stored using (day, tenant_id, model, priority)
        where to_jsonb(summed) is distinct from to_jsonb(stored)
        order by day, tenant_id
        limit $2
            "#,
            first_day,
            DIFFERENCES_MAX,
        )
        .fetch_all(&mut *snapshot)
        .await?;
        snapshot.commit().await?;
        let months = months.into_iter().map(named("settlement_month_rollups"));
        Ok(months
            .chain(refused_months.into_iter().map(named("rejection_month_rollups")))
            .chain(days.into_iter().map(named("settlement_day_rollups")))
            .chain(refused_days.into_iter().map(named("rejection_day_rollups")))
            .collect())
    }
}
