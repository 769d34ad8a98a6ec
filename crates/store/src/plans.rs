//! Plans: named sets of limits and a priority ceiling, given to tenants.

use chrono::{DateTime, Utc};
use domain::ids::{PlanId, TenantId};
use domain::policy::Plan;
use domain::priority::Priority;
use sqlx::PgExecutor;

use crate::policy::{count, parse};
use crate::{Store, StoreError, Transaction};

/// Plans at most.
pub const PLANS_MAX: i64 = 200;

/// A plan as the console sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanRow {
    /// What gateways see.
    pub plan: Plan,
    /// How many tenants are on it.
    pub tenants: u64,
    /// How many limits it has.
    pub limits: u64,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// Raised by every change.
    pub version: i64,
}

/// What can be changed about a plan; its limits are rows of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanValues {
    /// Its name, unique without regard to case.
    pub name: String,
    /// The ceiling of tenants that state none.
    pub priority_ceiling: Priority,
}

impl Store {
    /// Plans in force, by name; at most [`PLANS_MAX`].
    pub async fn plans(&self) -> Result<Vec<PlanRow>, StoreError> {
        let rows = sqlx::query_as!(
            Columns,
            "select id, name, priority_ceiling, created_at, version,
                    (select count(*) from tenants where plan_id = plans.id and removed_at is null) as \"tenants!\",
                    (select count(*) from limits
                     where scope_kind = 'plan' and scope_id = plans.id::text and removed_at is null) as \"limits!\"
             from plans
             where removed_at is null
             order by lower(name)
             limit $1",
            PLANS_MAX,
        )
        .fetch_all(self.pool())
        .await?;
        rows.into_iter().map(Columns::into_row).collect()
    }

    /// One plan, unless it was removed.
    pub async fn find_plan(&self, id: PlanId) -> Result<Option<PlanRow>, StoreError> {
        find(self.pool(), id).await
    }

    /// Tenants on the plan by name, `at_most` so many.
    pub async fn tenants_on_plan(&self, id: PlanId, at_most: i64) -> Result<Vec<(TenantId, String)>, StoreError> {
        let rows = sqlx::query!(
            "select id, name from tenants where plan_id = $1 and removed_at is null order by lower(name) limit $2",
            id.0,
            at_most,
        )
        .fetch_all(self.pool())
        .await?;
        Ok(rows.into_iter().map(|row| (row.id.into(), row.name)).collect())
    }
}

/// Whether the plan is in force; it stays so until the transaction ends.
pub async fn exists(transaction: &mut Transaction, id: PlanId) -> Result<bool, StoreError> {
    let found = sqlx::query_scalar!(
        "select 1 as one from plans where id = $1 and removed_at is null for key share",
        id.0
    )
    .fetch_optional(&mut **transaction)
    .await?;
    Ok(found.is_some())
}

/// How many plans are in force.
pub async fn count_plans(transaction: &mut Transaction) -> Result<i64, StoreError> {
    Ok(
        sqlx::query_scalar!("select count(*) as \"count!\" from plans where removed_at is null")
            .fetch_one(&mut **transaction)
            .await?,
    )
}

/// One plan, kept from other writers, and from tenants that would be put on it, until the transaction ends.
pub async fn lock(transaction: &mut Transaction, id: PlanId) -> Result<Option<PlanRow>, StoreError> {
    // First the lock, then the reading: a reading that waited for the lock would show what was there before.
    sqlx::query!("select 1 as one from plans where id = $1 for update", id.0)
        .fetch_optional(&mut **transaction)
        .await?;
    find(&mut **transaction, id).await
}

/// Adds a plan. Constraint `plans_name`: the name is taken.
pub async fn insert(
    transaction: &mut Transaction,
    id: PlanId,
    values: &PlanValues,
    created_at: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query!(
        "insert into plans (id, name, priority_ceiling, created_at, policy_version) values ($1, $2, $3, $4, 0)",
        id.0,
        values.name,
        values.priority_ceiling.as_str(),
        created_at,
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

/// Changes a plan that is locked. Constraint `plans_name`: the name is taken.
pub async fn update(transaction: &mut Transaction, id: PlanId, values: &PlanValues) -> Result<(), StoreError> {
    sqlx::query!(
        "update plans set name = $2, priority_ceiling = $3, version = version + 1 where id = $1",
        id.0,
        values.name,
        values.priority_ceiling.as_str(),
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

/// Takes a plan that is locked out of force, and its limits with it.
pub async fn remove(transaction: &mut Transaction, id: PlanId, removed_at: DateTime<Utc>) -> Result<(), StoreError> {
    sqlx::query!(
        "update limits
         set removed_at = $2, version = version + 1
         where scope_kind = 'plan' and scope_id = $1::uuid::text and removed_at is null",
        id.0,
        removed_at,
    )
    .execute(&mut **transaction)
    .await?;
    sqlx::query!(
        "update plans set removed_at = $2, version = version + 1 where id = $1",
        id.0,
        removed_at,
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

async fn find(executor: impl PgExecutor<'_>, id: PlanId) -> Result<Option<PlanRow>, StoreError> {
    sqlx::query_as!(
        Columns,
        "select id, name, priority_ceiling, created_at, version,
                (select count(*) from tenants where plan_id = plans.id and removed_at is null) as \"tenants!\",
                (select count(*) from limits
                 where scope_kind = 'plan' and scope_id = plans.id::text and removed_at is null) as \"limits!\"
         from plans
         where id = $1 and removed_at is null",
        id.0,
    )
    .fetch_optional(executor)
    .await?
    .map(Columns::into_row)
    .transpose()
}

struct Columns {
    id: uuid::Uuid,
    name: String,
    priority_ceiling: String,
    created_at: DateTime<Utc>,
    version: i64,
    tenants: i64,
    limits: i64,
}

impl Columns {
    fn into_row(self) -> Result<PlanRow, StoreError> {
        Ok(PlanRow {
            plan: Plan {
                id: self.id.into(),
                name: self.name,
                priority_ceiling: parse(&self.priority_ceiling, "plans.priority_ceiling")?,
                removed_at: None,
            },
            tenants: count(self.tenants),
            limits: count(self.limits),
            created_at: self.created_at,
            version: self.version,
        })
    }
}
