//! What budgets have spent: sums over the roll-ups together with the marks they contain, in one snapshot.

use std::collections::HashMap;

use domain::ids::{KeyId, TenantId, UpstreamId};
use domain::money::Nanos;
use domain::periods::Span;
use domain::priority::Priority;
use serde::Serialize;
use sqlx::types::Json;
use uuid::Uuid;

use crate::{Store, StoreError, Transaction, in_time, ledger};

/// Budgets summed by one statement; longer lists are cut into several, inside the same snapshot.
const FILTERS_PER_QUERY: usize = 500;
/// How long Postgres may take to sum them all, in milliseconds.
const SPENT_WAIT_MS: u64 = 30_000;

/// What counts towards one budget. Absent parts count everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetFilter {
    /// By `admitted_at`; start and end lie on 15-minute boundaries, as those of every period do.
    pub span: Span,
    /// Only this tenant's.
    pub tenant: Option<TenantId>,
    /// Only this user's; together with `tenant`.
    pub user: Option<String>,
    /// Only this key's.
    pub key: Option<KeyId>,
    /// Only these models: one, or those of a group.
    pub models: Option<Vec<String>>,
    /// Only what this upstream answered.
    pub upstream: Option<UpstreamId>,
    /// Only requests of this priority.
    pub priority: Option<Priority>,
}

impl BudgetFilter {
    /// Everything in `span`.
    pub fn everything(span: Span) -> Self {
        Self {
            span,
            tenant: None,
            user: None,
            key: None,
            models: None,
            upstream: None,
            priority: None,
        }
    }
}

/// What a budget has spent, adjustments included; negative where corrections exceed use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Input and output tokens.
    pub tokens: i64,
    /// Money.
    pub cost: Nanos,
}

/// Sums, and which journal records they contain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BudgetSums {
    /// In the order of the filters.
    pub spent: Vec<Spent>,
    /// Every journal record up to this number of each gateway is in the sums, none above it. A gateway that never
    /// shipped is absent and counts as 0.
    pub marks: HashMap<String, u64>,
}

#[derive(Serialize)]
struct FilterRow<'a> {
    position: usize,
    span_start: chrono::DateTime<chrono::Utc>,
    span_end: chrono::DateTime<chrono::Utc>,
    tenant_id: Option<Uuid>,
    user_id: Option<&'a str>,
    key_id: Option<Uuid>,
    models: Option<&'a [String]>,
    upstream_id: Option<Uuid>,
    priority: Option<&'static str>,
}

struct SpentRow {
    position: i32,
    tokens: i64,
    cost_nanos: i64,
}

impl Store {
    /// What each of these budgets has spent, and the marks, all in one snapshot.
    pub async fn budgets_spent(&self, filters: &[BudgetFilter]) -> Result<BudgetSums, StoreError> {
        in_time(SPENT_WAIT_MS, self.sum_budgets(filters)).await
    }

    async fn sum_budgets(&self, filters: &[BudgetFilter]) -> Result<BudgetSums, StoreError> {
        let mut snapshot = self.begin_snapshot().await?;
        let marks = ledger::marks(&mut snapshot).await?;
        let spent = sums_in(&mut snapshot, filters).await?;
        snapshot.commit().await?;
        Ok(BudgetSums { spent, marks })
    }

    /// What one budget has spent, and the marks.
    pub async fn budget_spent(&self, filter: &BudgetFilter) -> Result<(Spent, HashMap<String, u64>), StoreError> {
        let sums = self.budgets_spent(std::slice::from_ref(filter)).await?;
        Ok((sums.spent.first().copied().unwrap_or_default(), sums.marks))
    }
}

/// What each of these budgets has spent, in the order of the filters, inside the caller's snapshot.
pub(crate) async fn sums_in(snapshot: &mut Transaction, filters: &[BudgetFilter]) -> Result<Vec<Spent>, StoreError> {
    let mut spent = vec![Spent::default(); filters.len()];
    // One statement for each way to find the rows, so that each uses its index.
    let (by_key, rest): (Vec<_>, Vec<_>) = (0..filters.len()).partition(|&at| filters[at].key.is_some());
    let (by_tenant, by_time): (Vec<_>, Vec<_>) = rest.into_iter().partition(|&at| filters[at].tenant.is_some());
    for (positions, path) in [(by_key, Path::Key), (by_tenant, Path::Tenant), (by_time, Path::Time)] {
        for positions in positions.chunks(FILTERS_PER_QUERY) {
            let rows = positions.iter().map(|&at| filter_row(at, &filters[at])).collect();
            for row in sums(snapshot, path, rows).await? {
                let at = usize::try_from(row.position).unwrap_or(usize::MAX);
                if let Some(spent) = spent.get_mut(at) {
                    *spent = Spent {
                        tokens: row.tokens,
                        cost: Nanos(row.cost_nanos),
                    };
                }
            }
        }
    }
    Ok(spent)
}

#[derive(Clone, Copy)]
enum Path {
    Key,
    Tenant,
    Time,
}

fn filter_row(position: usize, filter: &BudgetFilter) -> FilterRow<'_> {
    FilterRow {
        position,
        span_start: filter.span.start,
        span_end: filter.span.end,
        tenant_id: filter.tenant.map(Into::into),
        user_id: filter.user.as_deref(),
        key_id: filter.key.map(Into::into),
        models: filter.models.as_deref(),
        upstream_id: filter.upstream.map(Into::into),
        priority: filter.priority.map(Priority::as_str),
    }
}

async fn sums(
    snapshot: &mut Transaction,
    path: Path,
    filters: Vec<FilterRow<'_>>,
) -> Result<Vec<SpentRow>, StoreError> {
    let filters = Json(filters);
    let rows = match path {
        Path::Key => {
            sqlx::query_as!(
                SpentRow,
                r#"
                select position as "position!", sums.tokens as "tokens!", sums.cost_nanos as "cost_nanos!"
                from jsonb_to_recordset($1) as filter (
                    position integer, span_start timestamptz, span_end timestamptz, tenant_id uuid, user_id text,
                    key_id uuid, models jsonb, upstream_id uuid, priority text)
                cross join lateral (
                    select
                        coalesce(sum(input_fresh_tokens + cache_read_tokens + cache_write_5m_tokens
                            + cache_write_1h_tokens + output_tokens
                            + adjusted_input_tokens + adjusted_output_tokens), 0)::bigint as tokens,
                        coalesce(sum(cost_nanos + adjusted_cost_nanos), 0)::bigint as cost_nanos
                    from settlement_rollups as rollup
                    where rollup.key_id = filter.key_id
                        and bucket_start >= filter.span_start
                        and bucket_start < filter.span_end
                        and (filter.tenant_id is null or rollup.tenant_id = filter.tenant_id)
                        and (filter.user_id is null or rollup.user_id = filter.user_id)
                        and (filter.models is null or filter.models ? rollup.model)
                        and (filter.upstream_id is null or rollup.upstream_id = filter.upstream_id)
                        and (filter.priority is null or rollup.priority = filter.priority)
                ) as sums
                "#,
                filters as _,
            )
            .fetch_all(&mut **snapshot)
            .await?
        }
        Path::Tenant => {
            sqlx::query_as!(
                SpentRow,
                r#"
                select position as "position!", sums.tokens as "tokens!", sums.cost_nanos as "cost_nanos!"
                from jsonb_to_recordset($1) as filter (
                    position integer, span_start timestamptz, span_end timestamptz, tenant_id uuid, user_id text,
                    models jsonb, upstream_id uuid, priority text)
                cross join lateral (
                    select
                        coalesce(sum(input_fresh_tokens + cache_read_tokens + cache_write_5m_tokens
                            + cache_write_1h_tokens + output_tokens
                            + adjusted_input_tokens + adjusted_output_tokens), 0)::bigint as tokens,
                        coalesce(sum(cost_nanos + adjusted_cost_nanos), 0)::bigint as cost_nanos
                    from settlement_rollups as rollup
                    where rollup.tenant_id = filter.tenant_id
                        and bucket_start >= filter.span_start
                        and bucket_start < filter.span_end
                        and (filter.user_id is null or rollup.user_id = filter.user_id)
                        and (filter.models is null or filter.models ? rollup.model)
                        and (filter.upstream_id is null or rollup.upstream_id = filter.upstream_id)
                        and (filter.priority is null or rollup.priority = filter.priority)
                ) as sums
                "#,
                filters as _,
            )
            .fetch_all(&mut **snapshot)
            .await?
        }
        Path::Time => {
            sqlx::query_as!(
                SpentRow,
                r#"
                select position as "position!", sums.tokens as "tokens!", sums.cost_nanos as "cost_nanos!"
                from jsonb_to_recordset($1) as filter (
                    position integer, span_start timestamptz, span_end timestamptz, user_id text, models jsonb,
                    upstream_id uuid, priority text)
                cross join lateral (
                    select
                        coalesce(sum(input_fresh_tokens + cache_read_tokens + cache_write_5m_tokens
                            + cache_write_1h_tokens + output_tokens
                            + adjusted_input_tokens + adjusted_output_tokens), 0)::bigint as tokens,
                        coalesce(sum(cost_nanos + adjusted_cost_nanos), 0)::bigint as cost_nanos
                    from settlement_rollups as rollup
                    where bucket_start >= filter.span_start
                        and bucket_start < filter.span_end
                        and (filter.user_id is null or rollup.user_id = filter.user_id)
                        and (filter.models is null or filter.models ? rollup.model)
                        and (filter.upstream_id is null or rollup.upstream_id = filter.upstream_id)
                        and (filter.priority is null or rollup.priority = filter.priority)
                ) as sums
                "#,
                filters as _,
            )
            .fetch_all(&mut **snapshot)
            .await?
        }
    };
    Ok(rows)
}
