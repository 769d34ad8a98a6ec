//! Who runs at which priority, and how often gates refused whom: sums over the roll-ups.

use chrono::{DateTime, Utc};
use domain::ids::{KeyId, TenantId};
use domain::money::Nanos;
use domain::periods::Span;
use domain::priority::{AtPriority, Priority, Traffic};
use domain::reports::Completeness;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::policy::{count, parse, parse_some};
use crate::reports::{Source, read_completeness};
use crate::{Store, StoreError};

/// Tenants or keys of one list at most.
pub const TRAFFIC_ROWS_MAX: usize = 200;

/// Who ran what at which priority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrafficByPriority {
    /// Everybody's, rows beyond the bound included.
    pub all: Traffic,
    /// The busiest first; at most [`TRAFFIC_ROWS_MAX`]. Tenants, or the keys of the one asked for.
    pub rows: Vec<TrafficRow>,
    /// Whether there are more rows.
    pub is_cut: bool,
    /// How complete it is.
    pub completeness: Completeness,
}

/// One tenant's or key's traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrafficRow {
    /// Whose.
    pub tenant_id: TenantId,
    /// The tenant's name.
    pub tenant_name: Option<String>,
    /// The ceiling that the tenant states itself, or its plan.
    pub ceiling: Option<Priority>,
    /// With which key; `None` for a tenant's row, and for adjustments that name no key.
    pub key_id: Option<KeyId>,
    /// The key's name.
    pub key_name: Option<String>,
    /// The part of the key's text that may be shown.
    pub key_public_id: Option<String>,
    /// The key's own priority.
    pub key_priority: Option<Priority>,
    /// What happened.
    pub traffic: Traffic,
}

impl Store {
    /// What ran and what gates refused in `span` (on 15-minute boundaries): by tenant, or for one tenant by key.
    pub async fn traffic_by_priority(
        &self,
        span: Span,
        tenant: Option<TenantId>,
        now: DateTime<Utc>,
    ) -> Result<TrafficByPriority, StoreError> {
        let mut snapshot = self.begin_snapshot().await?;
        let source = Source::of(&mut snapshot, span).await?;
        let columns = read(&mut snapshot, source, span, tenant).await?;
        let completeness = read_completeness(&mut snapshot, span, now).await?;
        snapshot.commit().await?;
        let mut all = Traffic::default();
        let mut rows: Vec<TrafficRow> = Vec::new();
        let mut place = 0;
        for column in columns {
            let priority = parse(&column.priority, "settlement_rollups.priority")?;
            let at = AtPriority {
                requests: count(column.requests),
                charged: Nanos(column.charged_nanos),
                gated: count(column.gated),
            };
            if column.place == 0 {
                *all.at_mut(priority) = at;
                continue;
            }
            if column.place != place {
                place = column.place;
                rows.push(column.into_row()?);
            }
            if let Some(row) = rows.last_mut() {
                *row.traffic.at_mut(priority) = at;
            }
        }
        let is_cut = rows.len() > TRAFFIC_ROWS_MAX;
        rows.truncate(TRAFFIC_ROWS_MAX);
        Ok(TrafficByPriority {
            all,
            rows,
            is_cut,
            completeness,
        })
    }
}

/// One row per subject and priority in the order of subjects; first, in place 0, everybody's.
async fn read(
    connection: &mut PgConnection,
    source: Source,
    span: Span,
    tenant: Option<TenantId>,
) -> Result<Vec<TrafficColumns>, StoreError> {
    let rows = sqlx::query_as!(
        TrafficColumns,
        r#"
        with used as (
            select
                tenant_id,
                case when $3::uuid is null then '00000000-0000-0000-0000-000000000000' else key_id end as key_id,
                priority,
                sum(requests) as requests,
                sum(cost_nanos + adjusted_cost_nanos) as charged_nanos
            from (
                -- A whole month has sums of its own.
                select tenant_id, key_id, priority, requests, cost_nanos, adjusted_cost_nanos
                from settlement_month_rollups
                where month = $5
                    and grain = case when $3::uuid is null then 'tenant' else 'key' end
                union all
                select tenant_id, key_id, priority, requests, cost_nanos, adjusted_cost_nanos
                from settlement_rollups
                where $5::date is null
                    and bucket_start >= $1
                    and bucket_start < $2
            ) as kept
            where ($3::uuid is null or tenant_id = $3)
            group by 1, 2, 3
        ),
        held_back as (
            select
                tenant_id,
                case when $3::uuid is null then '00000000-0000-0000-0000-000000000000' else key_id end as key_id,
                priority,
                sum(refusals) as gated
            from (
                select tenant_id, key_id, priority, code, refusals
                from rejection_month_rollups
                where month = $5
                    and grain = case when $3::uuid is null then 'tenant' else 'key' end
                union all
                select tenant_id, key_id, priority, code, refusals
                from rejection_rollups
                where $5::date is null
                    and bucket_start >= $1
                    and bucket_start < $2
            ) as kept
            where ($3::uuid is null or tenant_id = $3)
                and code = 'priority_gated'
            group by 1, 2, 3
        ),
        happened as (
            select
                tenant_id, key_id, priority,
                coalesce(requests, 0) as requests,
                coalesce(charged_nanos, 0) as charged_nanos,
                coalesce(gated, 0) as gated
            from used full join held_back using (tenant_id, key_id, priority)
        ),
        sized as (
            select happened.*, sum(requests + gated) over (partition by tenant_id, key_id) as size from happened
        ),
        placed as (
            select sized.*, dense_rank() over (order by size desc, tenant_id, key_id) as place from sized
        )
        select
            0::bigint as "place!",
            '00000000-0000-0000-0000-000000000000'::uuid as "tenant_id!",
            null as "tenant_name?",
            null as "ceiling?",
            '00000000-0000-0000-0000-000000000000'::uuid as "key_id!",
            null as "key_name?",
            null as "key_public_id?",
            null as "key_priority?",
            priority as "priority!",
            sum(requests)::bigint as "requests!",
            sum(charged_nanos)::bigint as "charged_nanos!",
            sum(gated)::bigint as "gated!"
        from happened
        group by priority
        union all
        select
            place, placed.tenant_id, tenants.name, coalesce(tenants.priority_ceiling, plans.priority_ceiling),
            placed.key_id, keys.name, keys.public_id, keys.priority, placed.priority, placed.requests::bigint,
            placed.charged_nanos::bigint, placed.gated::bigint
        from placed
        left join tenants on tenants.id = placed.tenant_id
        left join plans on plans.id = tenants.plan_id and plans.removed_at is null
        left join keys on keys.id = placed.key_id
        where place <= $4
        order by 1
        "#,
        span.start,
        span.end,
        tenant.map(Uuid::from),
        TRAFFIC_ROWS_MAX as i64 + 1,
        source.month(),
    )
    .fetch_all(connection)
    .await?;
    Ok(rows)
}

struct TrafficColumns {
    place: i64,
    tenant_id: Uuid,
    tenant_name: Option<String>,
    ceiling: Option<String>,
    key_id: Uuid,
    key_name: Option<String>,
    key_public_id: Option<String>,
    key_priority: Option<String>,
    priority: String,
    requests: i64,
    charged_nanos: i64,
    gated: i64,
}

impl TrafficColumns {
    fn into_row(self) -> Result<TrafficRow, StoreError> {
        Ok(TrafficRow {
            tenant_id: self.tenant_id.into(),
            tenant_name: self.tenant_name,
            ceiling: parse_some(self.ceiling, "tenants.priority_ceiling")?,
            key_id: (!self.key_id.is_nil()).then_some(self.key_id.into()),
            key_name: self.key_name,
            key_public_id: self.key_public_id,
            key_priority: parse_some(self.key_priority, "keys.priority")?,
            traffic: Traffic::default(),
        })
    }
}
