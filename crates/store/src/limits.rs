//! Limits on the nodes of the quota tree and on classes of nodes.

use chrono::{DateTime, Utc};
use domain::ids::{LimitId, TenantId};
use domain::limits::{DEFAULT_WINDOW_SECONDS, Dimension, Limit, Target};
use domain::periods::Period;
use domain::priority::Priority;
use sqlx::PgExecutor;
use uuid::Uuid;

use crate::policy::LimitColumns;
use crate::{Store, StoreError, Transaction};

/// Limits on one node at most.
pub const LIMITS_OF_NODE_MAX: i64 = 200;
/// Limits on one page of every node's, at most.
pub const LIMITS_PAGE_MAX: i64 = 201;

/// The limits on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeLimitRows {
    /// In force, by dimension.
    pub limits: Vec<Limit>,
    /// Raised by every change to any of them, additions and removals included.
    pub version: i64,
}

/// Which limits to list. Absent parts let everything through; present ones must all match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitFilter {
    /// On this tenant, its classes, users and keys.
    pub tenant: Option<TenantId>,
    /// On this node or class itself.
    pub target: Option<Target>,
    /// Of this dimension.
    pub dimension: Option<Dimension>,
}

impl Store {
    /// Limits in force in the order in which they were set, those after this one, each with its node's version; at most
    /// `count` and [`LIMITS_PAGE_MAX`].
    pub async fn limits_after(
        &self,
        filter: &LimitFilter,
        after: Option<LimitId>,
        count: i64,
    ) -> Result<Vec<(Limit, i64)>, StoreError> {
        let (kind, scope_id, class) = match &filter.target {
            Some(target) => {
                let (kind, id, class) = columns(target);
                (Some(kind), Some(id), class)
            }
            None => (None, None, None),
        };
        let rows = sqlx::query_as!(
            VersionedColumns,
            "select limits.id, scope_kind, scope_id, class, dimension, value, window_seconds, burst, period, model, priority,
                    mode, gate_lower_percent, gate_upper_percent, gate_upper_waits, increase_value, increase_until,
                    threshold_percents, removed_at,
                    (
                        select sum(node.version)
                        from limits as node
                        where node.scope_kind = limits.scope_kind
                          and node.scope_id = limits.scope_id
                          and node.class is not distinct from limits.class
                    )::bigint as \"node_version!\"
             from limits
             where removed_at is null
               and ($1::uuid is null or limits.id > $1)
               and ($2::text is null
                    or (scope_kind = 'tenant' and scope_id = $2)
                    or (scope_kind = 'user' and starts_with(scope_id, $2 || '/'))
                    or (scope_kind = 'key' and scope_id in (select keys.id::text from keys where tenant_id::text = $2)))
               and ($3::text is null or (scope_kind = $3 and scope_id = $4 and class is not distinct from $5))
               and ($6::text is null or dimension = $6)
             order by limits.id
             limit $7",
            after.map(|id| id.0),
            filter.tenant.map(|id| id.to_string()),
            kind,
            scope_id,
            class,
            filter.dimension.map(Dimension::as_str),
            count.clamp(0, LIMITS_PAGE_MAX),
        )
        .fetch_all(self.pool())
        .await?;
        rows.into_iter().map(VersionedColumns::into_limit).collect()
    }

    /// One limit in force with its node's version.
    pub async fn find_limit(&self, id: LimitId) -> Result<Option<(Limit, i64)>, StoreError> {
        let row = sqlx::query_as!(
            VersionedColumns,
            "select limits.id, scope_kind, scope_id, class, dimension, value, window_seconds, burst, period, model, priority,
                    mode, gate_lower_percent, gate_upper_percent, gate_upper_waits, increase_value, increase_until,
                    threshold_percents, removed_at,
                    (
                        select sum(node.version)
                        from limits as node
                        where node.scope_kind = limits.scope_kind
                          and node.scope_id = limits.scope_id
                          and node.class is not distinct from limits.class
                    )::bigint as \"node_version!\"
             from limits
             where limits.id = $1 and removed_at is null",
            id.0,
        )
        .fetch_optional(self.pool())
        .await?;
        row.map(VersionedColumns::into_limit).transpose()
    }

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

/// A limit with what its node's version is.
struct VersionedColumns {
    id: Uuid,
    scope_kind: String,
    scope_id: String,
    class: Option<String>,
    dimension: String,
    value: i64,
    window_seconds: i32,
    burst: Option<i64>,
    period: String,
    model: Option<String>,
    priority: Option<String>,
    mode: String,
    gate_lower_percent: Option<i16>,
    gate_upper_percent: Option<i16>,
    gate_upper_waits: bool,
    increase_value: Option<i64>,
    increase_until: Option<DateTime<Utc>>,
    threshold_percents: Vec<i16>,
    removed_at: Option<DateTime<Utc>>,
    node_version: i64,
}

impl VersionedColumns {
    fn into_limit(self) -> Result<(Limit, i64), StoreError> {
        let columns = LimitColumns {
            id: self.id,
            scope_kind: self.scope_kind,
            scope_id: self.scope_id,
            class: self.class,
            dimension: self.dimension,
            value: self.value,
            window_seconds: self.window_seconds,
            burst: self.burst,
            period: self.period,
            model: self.model,
            priority: self.priority,
            mode: self.mode,
            gate_lower_percent: self.gate_lower_percent,
            gate_upper_percent: self.gate_upper_percent,
            gate_upper_waits: self.gate_upper_waits,
            increase_value: self.increase_value,
            increase_until: self.increase_until,
            threshold_percents: self.threshold_percents,
            removed_at: self.removed_at,
        };
        Ok((columns.into_row()?.limit, self.node_version))
    }
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
