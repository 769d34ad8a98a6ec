//! Limits on the nodes of the quota tree and on classes of nodes.

use chrono::{DateTime, Utc};
use domain::ids::TenantId;
use domain::limits::{DEFAULT_WINDOW_SECONDS, Limit, Target};
use domain::periods::Period;
use domain::priority::Priority;
use sqlx::PgExecutor;

use crate::policy::LimitColumns;
use crate::{Store, StoreError, Transaction};

/// Limits on one node at most.
pub const LIMITS_OF_NODE_MAX: i64 = 200;

/// The limits on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeLimitRows {
    /// In force, by dimension.
    pub limits: Vec<Limit>,
    /// Raised by every change to any of them, additions and removals included.
    pub version: i64,
}

impl Store {
    /// The limits that sit on `target` itself.
    pub async fn limits_of(&self, target: &Target) -> Result<NodeLimitRows, StoreError> {
        let mut snapshot = self.begin_snapshot().await?;
        find(&mut snapshot, target).await
    }

    /// The users of a tenant that have limits of their own, at most `count`.
    pub async fn users_with_limits(&self, tenant: TenantId, count: i64) -> Result<Vec<String>, StoreError> {
        Ok(sqlx::query_scalar!(
            "select distinct substr(scope_id, length($1) + 1) as \"user!\"
             from limits
             where removed_at is null
               and scope_kind = 'user'
               and class is null
               and starts_with(scope_id, $1)
             order by 1
             limit $2",
            format!("{tenant}/"),
            count,
        )
        .fetch_all(self.pool())
        .await?)
    }

    /// Every budget of cost on a tenant itself, whatever its period: what the list of tenants shows.
    pub async fn tenant_budgets(&self) -> Result<Vec<Limit>, StoreError> {
        let rows = sqlx::query_as!(
            LimitColumns,
            "select id, scope_kind, scope_id, class, dimension, value, window_seconds, burst, period, model, priority,
                    mode, gate_lower_percent, gate_upper_percent, gate_upper_waits, increase_value, increase_until, threshold_percents, removed_at
             from limits
             where removed_at is null
               and scope_kind = 'tenant'
               and class is null
               and dimension in ('budget_cost', 'budget_tokens')"
        )
        .fetch_all(self.pool())
        .await?;
        rows.into_iter()
            .map(|row| row.into_row().map(|row| row.limit))
            .collect()
    }
}

/// The limits on a node, which stays the writer's own until the transaction ends.
pub async fn lock(transaction: &mut Transaction, target: &Target) -> Result<NodeLimitRows, StoreError> {
    let (kind, id, class) = columns(target);
    let node = format!("{kind}:{id}:{}", class.unwrap_or_default());
    sqlx::query!(
        "select pg_advisory_xact_lock(hashtextextended('tollgate.limits:' || $1, 0))",
        node
    )
    .execute(&mut **transaction)
    .await?;
    find(transaction, target).await
}

/// Adds a limit. Constraint `limits_slot`: the node has one in this slot.
pub async fn insert(transaction: &mut Transaction, limit: &Limit, created_at: DateTime<Utc>) -> Result<(), StoreError> {
    let (kind, id, class) = columns(&limit.target);
    let stored = Stored::of(limit);
    sqlx::query!(
        "insert into limits (id, scope_kind, scope_id, class, dimension, value, window_seconds, burst, period, model,
                             priority, mode, gate_lower_percent, gate_upper_percent, gate_upper_waits,
                             threshold_percents, created_at, policy_version)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, 0)",
        limit.id.0,
        kind,
        id,
        class,
        limit.dimension.as_str(),
        stored.value,
        stored.window_seconds,
        stored.burst,
        stored.period.as_str(),
        limit.model.as_deref(),
        limit.priority.map(Priority::as_str),
        limit.mode.as_str(),
        stored.gate_lower_percent,
        stored.gate_upper_percent,
        limit.gates.is_some_and(|gates| gates.upper_waits),
        &stored.threshold_percents,
        created_at,
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

/// Changes what may change about a limit without leaving its slot.
pub async fn update(transaction: &mut Transaction, limit: &Limit) -> Result<(), StoreError> {
    let stored = Stored::of(limit);
    sqlx::query!(
        "update limits
         set value = $2, burst = $3, mode = $4, gate_lower_percent = $5, gate_upper_percent = $6,
             gate_upper_waits = $7, threshold_percents = $8, increase_value = $9, increase_until = $10,
             version = version + 1
         where id = $1",
        limit.id.0,
        stored.value,
        stored.burst,
        limit.mode.as_str(),
        stored.gate_lower_percent,
        stored.gate_upper_percent,
        limit.gates.is_some_and(|gates| gates.upper_waits),
        &stored.threshold_percents,
        limit
            .increase
            .map(|increase| i64::try_from(increase.value).unwrap_or(i64::MAX)),
        limit.increase.map(|increase| increase.until),
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

/// Takes a limit out of force; the row stays for refusals that name it.
pub async fn remove(transaction: &mut Transaction, limit: &Limit, removed_at: DateTime<Utc>) -> Result<(), StoreError> {
    sqlx::query!(
        "update limits set removed_at = $2, version = version + 1 where id = $1",
        limit.id.0,
        removed_at,
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

async fn find(transaction: &mut Transaction, target: &Target) -> Result<NodeLimitRows, StoreError> {
    Ok(NodeLimitRows {
        version: version(&mut **transaction, target).await?,
        limits: rows(&mut **transaction, target).await?,
    })
}

async fn rows(executor: impl PgExecutor<'_>, target: &Target) -> Result<Vec<Limit>, StoreError> {
    let (kind, id, class) = columns(target);
    let rows = sqlx::query_as!(
        LimitColumns,
        "select id, scope_kind, scope_id, class, dimension, value, window_seconds, burst, period, model, priority, mode,
                gate_lower_percent, gate_upper_percent, gate_upper_waits, increase_value, increase_until, threshold_percents, removed_at
         from limits
         where scope_kind = $1 and scope_id = $2 and class is not distinct from $3 and removed_at is null
         order by dimension, window_seconds, period, model nulls first, priority nulls first
         limit $4",
        kind,
        id,
        class,
        LIMITS_OF_NODE_MAX,
    )
    .fetch_all(executor)
    .await?;
    rows.into_iter()
        .map(|row| row.into_row().map(|row| row.limit))
        .collect()
}

/// Counts every change ever made on the node: each of them adds one to this sum.
async fn version(executor: impl PgExecutor<'_>, target: &Target) -> Result<i64, StoreError> {
    let (kind, id, class) = columns(target);
    Ok(sqlx::query_scalar!(
        "select coalesce(sum(version), 0)::bigint as \"version!\"
         from limits
         where scope_kind = $1 and scope_id = $2 and class is not distinct from $3",
        kind,
        id,
        class,
    )
    .fetch_one(executor)
    .await?)
}

fn columns(target: &Target) -> (&'static str, String, Option<&'static str>) {
    match target {
        Target::Node(scope) => (scope.kind(), scope.identifier(), None),
        Target::OfTenant(tenant, class) => ("tenant", tenant.to_string(), Some(class.as_str())),
        Target::OfPlan(plan, class) => ("plan", plan.to_string(), Some(class.as_str())),
    }
}

/// A limit's figures as Postgres keeps them. What does not matter for its dimension has one fixed value, so that the
/// unique index on slots speaks of slots.
struct Stored {
    value: i64,
    window_seconds: i32,
    burst: Option<i64>,
    period: Period,
    gate_lower_percent: Option<i16>,
    gate_upper_percent: Option<i16>,
    threshold_percents: Vec<i16>,
}

impl Stored {
    fn of(limit: &Limit) -> Self {
        let window_seconds = if limit.dimension.is_rate() {
            limit.window_seconds
        } else {
            DEFAULT_WINDOW_SECONDS
        };
        let count = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        Self {
            value: count(limit.value),
            window_seconds: i32::try_from(window_seconds).unwrap_or(i32::MAX),
            burst: limit.burst.map(count),
            period: if limit.dimension.is_budget() {
                limit.period
            } else {
                Period::Month
            },
            gate_lower_percent: limit.gates.map(|gates| i16::from(gates.lower_percent)),
            gate_upper_percent: limit.gates.map(|gates| i16::from(gates.upper_percent)),
            threshold_percents: limit.thresholds.percents().map(i16::from).collect(),
        }
    }
}
