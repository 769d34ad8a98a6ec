//! The limits of the quota tree side by side: what parents have and what their children have together.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use domain::ids::{PlanId, TenantId};
use domain::limits::{Class, Limit, Scope, Slot, Target};
use uuid::Uuid;

use crate::policy::{LimitColumns, count, parse, parse_some};
use crate::tenants::TENANTS_MAX;
use crate::{Store, StoreError, Transaction};

/// Limits from the root of the tree down to the keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitTree {
    /// Of the whole installation.
    pub global: Vec<Limit>,
    /// Of every tenant that has not been removed; at most [`TENANTS_MAX`].
    pub tenants: Vec<TenantLimits>,
    /// Of each tenant on a plan.
    pub plans: HashMap<PlanId, Vec<Limit>>,
    /// Own limits of users and keys, added up by tenant, kind and slot. Keys that have ended are left out.
    pub below_tenants: Vec<LimitSum>,
}

/// A tenant's own limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantLimits {
    /// Which tenant.
    pub id: TenantId,
    /// Its plan.
    pub plan_id: Option<PlanId>,
    /// Its own limits, without the plan's.
    pub own: Vec<Limit>,
}

/// Limits of one slot of several nodes, added up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitSum {
    /// Whose nodes they are.
    pub tenant_id: TenantId,
    /// What kind of nodes: users or keys.
    pub each: Class,
    /// The slot.
    pub slot: Slot,
    /// The sum of the values in force.
    pub sum: u64,
    /// How many there are.
    pub count: u64,
}

impl Store {
    /// The limits of the tree, in one snapshot.
    pub async fn limit_tree(&self, now: DateTime<Utc>) -> Result<LimitTree, StoreError> {
        let mut snapshot = self.begin_snapshot().await?;
        let mut tree = LimitTree {
            tenants: tenants(&mut snapshot).await?,
            below_tenants: below_tenants(&mut snapshot, now).await?,
            ..LimitTree::default()
        };
        let places: HashMap<TenantId, usize> = tree
            .tenants
            .iter()
            .enumerate()
            .map(|(place, tenant)| (tenant.id, place))
            .collect();
        for limit in above_users(&mut snapshot).await? {
            match &limit.target {
                Target::Node(Scope::Tenant(id)) => {
                    if let Some(place) = places.get(id) {
                        tree.tenants[*place].own.push(limit);
                    }
                }
                Target::OfPlan(id, _) => tree.plans.entry(*id).or_default().push(limit),
                _ => tree.global.push(limit),
            }
        }
        Ok(tree)
    }
}

async fn tenants(snapshot: &mut Transaction) -> Result<Vec<TenantLimits>, StoreError> {
    let rows = sqlx::query!(
        "select tenants.id, plans.id as \"plan_id?\"
         from tenants
         left join plans on plans.id = tenants.plan_id and plans.removed_at is null
         where tenants.removed_at is null
         order by lower(tenants.name)
         limit $1",
        TENANTS_MAX,
    )
    .fetch_all(&mut **snapshot)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| TenantLimits {
            id: row.id.into(),
            plan_id: row.plan_id.map(Into::into),
            own: Vec::new(),
        })
        .collect())
}

/// Limits of the installation, of tenants themselves, and of each tenant of a plan.
async fn above_users(snapshot: &mut Transaction) -> Result<Vec<Limit>, StoreError> {
    let rows = sqlx::query_as!(
        LimitColumns,
        "select id, scope_kind, scope_id, class, dimension, value, window_seconds, burst, period, model, priority, mode,
                gate_lower_percent, gate_upper_percent, gate_upper_waits, increase_value, increase_until, threshold_percents, removed_at
         from limits
         where removed_at is null
           and (scope_kind = 'global' or scope_kind = 'tenant' and class is null
                or scope_kind = 'plan' and class = 'tenant')
         order by dimension, window_seconds, period, model nulls first, priority nulls first"
    )
    .fetch_all(&mut **snapshot)
    .await?;
    rows.into_iter()
        .map(|row| row.into_row().map(|row| row.limit))
        .collect()
}

struct SumColumns {
    tenant_id: Uuid,
    class: String,
    dimension: String,
    window_seconds: i32,
    period: String,
    model: Option<String>,
    priority: Option<String>,
    sum: i64,
    count: i64,
}

async fn below_tenants(snapshot: &mut Transaction, now: DateTime<Utc>) -> Result<Vec<LimitSum>, StoreError> {
    // The cases keep Postgres from reading an identifier of another kind as a UUID.
    let rows = sqlx::query_as!(
        SumColumns,
        "with children as (
             select keys.tenant_id, limits.scope_kind, limits.dimension, limits.window_seconds, limits.period,
                    limits.model, limits.priority,
                    case when limits.increase_until > $1 then greatest(limits.value, limits.increase_value)
                         else limits.value end as value
             from limits
             join keys on keys.id = case when limits.scope_kind = 'key' then limits.scope_id::uuid end
             where limits.scope_kind = 'key'
               and limits.removed_at is null
               and keys.revoked_at is null
               and (keys.expires_at is null or keys.expires_at > $1)
             union all
             select case when scope_kind = 'user' then split_part(scope_id, '/', 1)::uuid end, scope_kind, dimension,
                    window_seconds, period, model, priority,
                    case when increase_until > $1 then greatest(value, increase_value) else value end
             from limits
             where scope_kind = 'user' and removed_at is null
         )
         select tenant_id as \"tenant_id!\", scope_kind as \"class!\", dimension as \"dimension!\",
                window_seconds as \"window_seconds!\", period as \"period!\", model, priority,
                least(sum(value), 9223372036854775807)::bigint as \"sum!\", count(*) as \"count!\"
         from children
         group by tenant_id, scope_kind, dimension, window_seconds, period, model, priority",
        now,
    )
    .fetch_all(&mut **snapshot)
    .await?;
    rows.into_iter().map(SumColumns::into_sum).collect()
}

impl SumColumns {
    fn into_sum(self) -> Result<LimitSum, StoreError> {
        let dimension: domain::limits::Dimension = parse(&self.dimension, "limits.dimension")?;
        let window_seconds = u32::try_from(self.window_seconds).unwrap_or(1).max(1);
        let period = parse(&self.period, "limits.period")?;
        Ok(LimitSum {
            tenant_id: self.tenant_id.into(),
            each: parse(&self.class, "limits.scope_kind")?,
            slot: Slot {
                dimension,
                window_seconds: dimension.is_rate().then_some(window_seconds),
                period: dimension.is_budget().then_some(period),
                model: self.model.map(Into::into),
                priority: parse_some(self.priority, "limits.priority")?,
            },
            sum: count(self.sum),
            count: count(self.count),
        })
    }
}
