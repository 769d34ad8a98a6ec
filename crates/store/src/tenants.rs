//! Tenants: who owns users, keys, limits and budgets.

use chrono::{DateTime, Utc};
use domain::ids::{PlanId, TenantId};
use domain::key_rules::KeyRules;
use domain::policy::Tenant;
use domain::priority::Priority;
use sqlx::PgExecutor;

use crate::policy::{parse, parse_some};
use crate::{Store, StoreError, Transaction};

/// Tenants listed at most.
pub const TENANTS_MAX: i64 = 10_000;
/// The ceiling of a tenant that states none and has no plan.
pub const PRIORITY_CEILING_DEFAULT: Priority = Priority::High;

/// A tenant as the console sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantRow {
    /// What gateways see.
    pub tenant: Tenant,
    /// The plan's name.
    pub plan_name: Option<String>,
    /// The highest priority its keys may run at, with plan and default taken into account.
    pub priority_ceiling_in_force: Priority,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// Raised by every change.
    pub version: i64,
}

impl Store {
    /// Tenants by name; at most [`TENANTS_MAX`].
    pub async fn tenants(&self) -> Result<Vec<TenantRow>, StoreError> {
        let rows = sqlx::query_as!(
            Columns,
            "select tenants.id, tenants.name, tenants.plan_id, tenants.priority_ceiling, tenants.has_strict_budgets,
                    tenants.keys_per_person, tenants.key_months_max, tenants.member_priority_ceiling,
                    tenants.member_models, tenants.suspended_at, tenants.created_at, tenants.version, plans.name as \"plan_name?\",
                    plans.priority_ceiling as \"plan_priority_ceiling?\"
             from tenants
             left join plans on plans.id = tenants.plan_id and plans.removed_at is null
             where tenants.removed_at is null
             order by lower(tenants.name)
             limit $1",
            TENANTS_MAX,
        )
        .fetch_all(self.pool())
        .await?;
        rows.into_iter().map(Columns::into_row).collect()
    }

    /// Tenants in the order in which they were made, those after this one; at most `count` and [`TENANTS_MAX`].
    pub async fn tenants_after(&self, after: Option<TenantId>, count: i64) -> Result<Vec<TenantRow>, StoreError> {
        let rows = sqlx::query_as!(
            Columns,
            "select tenants.id, tenants.name, tenants.plan_id, tenants.priority_ceiling, tenants.has_strict_budgets,
                    tenants.keys_per_person, tenants.key_months_max, tenants.member_priority_ceiling,
                    tenants.member_models, tenants.suspended_at, tenants.created_at, tenants.version, plans.name as \"plan_name?\",
                    plans.priority_ceiling as \"plan_priority_ceiling?\"
             from tenants
             left join plans on plans.id = tenants.plan_id and plans.removed_at is null
             where tenants.removed_at is null and ($1::uuid is null or tenants.id > $1)
             order by tenants.id
             limit $2",
            after.map(|id| id.0),
            count.clamp(0, TENANTS_MAX),
        )
        .fetch_all(self.pool())
        .await?;
        rows.into_iter().map(Columns::into_row).collect()
    }

    /// The tenant with this name, without regard to case.
    pub async fn find_tenant_by_name(&self, name: &str) -> Result<Option<TenantId>, StoreError> {
        let id = sqlx::query_scalar!(
            "select id from tenants where lower(name) = lower($1) and removed_at is null",
            name,
        )
        .fetch_optional(self.pool())
        .await?;
        Ok(id.map(Into::into))
    }

    /// One tenant, unless it was removed.
    pub async fn find_tenant(&self, id: TenantId) -> Result<Option<TenantRow>, StoreError> {
        find(self.pool(), id).await
    }
}

/// One tenant, kept from other writers until the transaction ends.
pub async fn lock(transaction: &mut Transaction, id: TenantId) -> Result<Option<TenantRow>, StoreError> {
    // First the lock, then the reading: a reading that waited for the lock would show what was there before.
    sqlx::query!("select 1 as one from tenants where id = $1 for no key update", id.0)
        .fetch_optional(&mut **transaction)
        .await?;
    find(&mut **transaction, id).await
}

/// What can be changed about a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantValues {
    /// Its name, unique without regard to case.
    pub name: String,
    /// Its plan.
    pub plan_id: Option<PlanId>,
    /// Its own priority ceiling.
    pub priority_ceiling: Option<Priority>,
    /// Whether missing output caps are written into requests.
    pub has_strict_budgets: bool,
}

/// Adds a tenant. Constraint `tenants_name`: the name is taken.
pub async fn insert(
    transaction: &mut Transaction,
    id: TenantId,
    values: &TenantValues,
    created_at: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query!(
        "insert into tenants (id, name, plan_id, priority_ceiling, has_strict_budgets, created_at, policy_version)
         values ($1, $2, $3, $4, $5, $6, 0)",
        id.0,
        values.name,
        values.plan_id.map(|plan| plan.0),
        values.priority_ceiling.map(Priority::as_str),
        values.has_strict_budgets,
        created_at,
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

/// Changes a tenant that is locked. Constraint `tenants_name`: the name is taken.
pub async fn update(transaction: &mut Transaction, id: TenantId, values: &TenantValues) -> Result<(), StoreError> {
    sqlx::query!(
        "update tenants
         set name = $2, plan_id = $3, priority_ceiling = $4, has_strict_budgets = $5, version = version + 1
         where id = $1",
        id.0,
        values.name,
        values.plan_id.map(|plan| plan.0),
        values.priority_ceiling.map(Priority::as_str),
        values.has_strict_budgets,
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

/// Sets what the keys of a locked tenant's people may be.
pub async fn set_key_rules(transaction: &mut Transaction, id: TenantId, rules: &KeyRules) -> Result<(), StoreError> {
    let count = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
    sqlx::query!(
        "update tenants
         set keys_per_person = $2, key_months_max = $3, member_priority_ceiling = $4, member_models = $5,
             version = version + 1
         where id = $1",
        id.0,
        rules.keys_per_person.map(count),
        rules.months_max.map(count),
        rules.priority_ceiling.map(Priority::as_str),
        rules.models.as_deref(),
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

/// Suspends a tenant that is locked, or lets it go on.
pub async fn set_suspended(
    transaction: &mut Transaction,
    id: TenantId,
    suspended_at: Option<DateTime<Utc>>,
) -> Result<(), StoreError> {
    sqlx::query!(
        "update tenants set suspended_at = $2, version = version + 1 where id = $1",
        id.0,
        suspended_at,
    )
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

/// The rules for people's keys as a tenant's row has them.
pub(crate) fn key_rules(
    keys_per_person: Option<i32>,
    months_max: Option<i32>,
    priority_ceiling: Option<String>,
    models: Option<Vec<String>>,
) -> Result<KeyRules, StoreError> {
    let count = |count: i32| u32::try_from(count).unwrap_or(0);
    Ok(KeyRules {
        keys_per_person: keys_per_person.map(count),
        months_max: months_max.map(count),
        priority_ceiling: parse_some(priority_ceiling, "tenants.member_priority_ceiling")?,
        models,
    })
}

async fn find(executor: impl PgExecutor<'_>, id: TenantId) -> Result<Option<TenantRow>, StoreError> {
    sqlx::query_as!(
        Columns,
        "select tenants.id, tenants.name, tenants.plan_id, tenants.priority_ceiling, tenants.has_strict_budgets,
                tenants.keys_per_person, tenants.key_months_max, tenants.member_priority_ceiling,
                tenants.member_models, tenants.suspended_at, tenants.created_at, tenants.version, plans.name as \"plan_name?\",
                plans.priority_ceiling as \"plan_priority_ceiling?\"
         from tenants
         left join plans on plans.id = tenants.plan_id and plans.removed_at is null
         where tenants.id = $1 and tenants.removed_at is null",
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
    plan_id: Option<uuid::Uuid>,
    priority_ceiling: Option<String>,
    has_strict_budgets: bool,
    keys_per_person: Option<i32>,
    key_months_max: Option<i32>,
    member_priority_ceiling: Option<String>,
    member_models: Option<Vec<String>>,
    suspended_at: Option<DateTime<Utc>>,
    created_at: DateTime<Utc>,
    version: i64,
    plan_name: Option<String>,
    plan_priority_ceiling: Option<String>,
}

impl Columns {
    fn into_row(self) -> Result<TenantRow, StoreError> {
        let own: Option<Priority> = parse_some(self.priority_ceiling, "tenants.priority_ceiling")?;
        let in_force = match (own, self.plan_priority_ceiling) {
            (Some(own), _) => own,
            (None, Some(plan)) => parse(&plan, "plans.priority_ceiling")?,
            (None, None) => PRIORITY_CEILING_DEFAULT,
        };
        Ok(TenantRow {
            tenant: Tenant {
                id: self.id.into(),
                name: self.name,
                plan_id: self.plan_id.map(Into::into),
                priority_ceiling: own,
                suspended_at: self.suspended_at,
                has_strict_budgets: self.has_strict_budgets,
                key_rules: key_rules(
                    self.keys_per_person,
                    self.key_months_max,
                    self.member_priority_ceiling,
                    self.member_models,
                )?,
                removed_at: None,
            },
            plan_name: self.plan_name,
            priority_ceiling_in_force: in_force,
            created_at: self.created_at,
            version: self.version,
        })
    }
}
