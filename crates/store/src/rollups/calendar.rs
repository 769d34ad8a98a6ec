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
        with summed as (
            select * from sum_settlement_months($1)
        ),
        stored as (
            select * from settlement_month_rollups where month = $1
        )
        select
            (select starts_at from billing_days where day = month) as "bucket_start!",
            tenant_id as "tenant_id!",
            to_jsonb(summed) as "from_entries?",
            to_jsonb(stored) as "stored?"
        from summed
        full join stored using (month, grain, tenant_id, user_id, key_id, model, priority)
        where to_jsonb(summed) is distinct from to_jsonb(stored)
        order by month, tenant_id
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
        with summed as (
            select * from sum_rejection_months($1)
        ),
        stored as (
            select * from rejection_month_rollups where month = $1
        )
        select
            (select starts_at from billing_days where day = month) as "bucket_start!",
            tenant_id as "tenant_id!",
            to_jsonb(summed) as "from_entries?",
            to_jsonb(stored) as "stored?"
        from summed
        full join stored using (month, grain, tenant_id, user_id, key_id, model, priority, code)
        where to_jsonb(summed) is distinct from to_jsonb(stored)
        order by month, tenant_id
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
        with summed as (
            select * from sum_settlement_days($1)
        ),
        stored as (
            select * from settlement_day_rollups where day >= $1 and day < $1::date + interval '1 month'
        )
        select
            (select starts_at from billing_days where day = coalesce(summed.day, stored.day)) as "bucket_start!",
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
        with summed as (
            select * from sum_rejection_days($1)
        ),
        stored as (
            select * from rejection_day_rollups where day >= $1 and day < $1::date + interval '1 month'
        )
        select
            (select starts_at from billing_days where day = coalesce(summed.day, stored.day)) as "bucket_start!",
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
