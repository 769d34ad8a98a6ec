//! Tenants: made, changed and suspended by operators.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use domain::ids::{PlanId, TenantId};
use domain::limits::{Dimension, Limit, Scope, Target};
use domain::periods::Period;
use domain::priority::Priority;
use domain::text;
use serde_json::{Value, json};
use store::budgets::BudgetFilter;
use store::budgets::Spent;
use store::tenants::{TenantRow, TenantValues};
use store::{Transaction, plans, tenants};

use crate::actor::Reach;
use crate::audit::Change;
use crate::fields::Fields;
use crate::limits::{NodeLimits, NodeLimitsView, is_plain};
use crate::{Actor, Control, ControlError, commit};
use domain::management_tokens::Permission;

/// What can be said about a tenant in one form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantDraft {
    /// Fields `name`, `plan_id`, `priority_ceiling`, and those of the limits.
    pub name: String,
    /// Its plan.
    pub plan_id: Option<PlanId>,
    /// The highest priority its keys may run at; the plan's or the default where absent.
    pub priority_ceiling: Option<Priority>,
    /// Whether missing output caps are written into requests, so that a budget's hold is a promise.
    pub has_strict_budgets: bool,
    /// Its plain limits and budgets.
    pub limits: NodeLimits,
}

/// What an editor of a tenant had read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantVersions {
    /// Of the tenant.
    pub tenant: i64,
    /// Of its limits.
    pub limits: i64,
}

/// A tenant in the list.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantSummary {
    /// The tenant.
    pub row: TenantRow,
    /// Its own budget of money for a calendar month.
    pub cost_budget: Option<Limit>,
    /// What it has spent this month.
    pub spent: Spent,
}

/// A tenant on its own page.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantView {
    /// The tenant.
    pub row: TenantRow,
    /// Its limits.
    pub limits: NodeLimitsView,
    /// What it has spent this month.
    pub spent: Spent,
}

impl TenantView {
    /// What an editor states when saving.
    pub fn versions(&self) -> TenantVersions {
        TenantVersions {
            tenant: self.row.version,
            limits: self.limits.version,
        }
    }
}

impl Control {
    /// Tenants by name, with what they have spent this month: all, or a manager's own.
    pub async fn tenants(&self, actor: &Actor, now: DateTime<Utc>) -> Result<Vec<TenantSummary>, ControlError> {
        actor.require_permission(Permission::TenantsRead)?;
        let rows = match actor.reach()? {
            Reach::Everything => self.store.tenants().await?,
            Reach::Tenant(own) => self.store.find_tenant(own).await?.into_iter().collect(),
            Reach::Own(..) => return Err(ControlError::Forbidden),
        };
        let filters = self.monthly_filters(rows.iter().map(|row| row.tenant.id), now).await?;
        let spent = self.store.budgets_spent(&filters).await?.spent;
        let mut budgets: HashMap<TenantId, Limit> = HashMap::new();
        for limit in self.store.tenant_budgets().await? {
            let Target::Node(Scope::Tenant(id)) = limit.target else {
                continue;
            };
            if is_plain(&limit, Dimension::BudgetCost) {
                budgets.insert(id, limit);
            }
        }
        Ok(rows
            .into_iter()
            .zip(spent)
            .map(|(row, spent)| TenantSummary {
                cost_budget: budgets.remove(&row.tenant.id),
                row,
                spent,
            })
            .collect())
    }

    /// Tenants in the order in which they were made, those after this one: all, or a manager's own. At most `count` and
    /// [`store::tenants::TENANTS_MAX`].
    pub async fn tenants_after(
        &self,
        actor: &Actor,
        after: Option<TenantId>,
        count: i64,
    ) -> Result<Vec<TenantRow>, ControlError> {
        actor.require_permission(Permission::TenantsRead)?;
        match actor.reach()? {
            Reach::Everything => Ok(self.store.tenants_after(after, count).await?),
            Reach::Tenant(own) if after.is_none_or(|after| after < own) => {
                Ok(self.store.find_tenant(own).await?.into_iter().collect())
            }
            Reach::Tenant(_) => Ok(Vec::new()),
            Reach::Own(..) => Err(ControlError::Forbidden),
        }
    }

    /// One tenant with its limits and what it has spent this month: any, or a manager's own.
    pub async fn tenant(&self, actor: &Actor, id: TenantId, now: DateTime<Utc>) -> Result<TenantView, ControlError> {
        actor.require_permission(Permission::TenantsRead)?;
        if !actor.sees_tenant(id)? {
            return Err(NOT_FOUND);
        }
        let row = self.store.find_tenant(id).await?.ok_or(NOT_FOUND)?;
        let limits = self.store.limits_of(&target(id)).await?.into();
        let filters = self.monthly_filters([id], now).await?;
        let spent = self.store.budgets_spent(&filters).await?.spent;
        Ok(TenantView {
            row,
            limits,
            spent: spent.into_iter().next().unwrap_or_default(),
        })
    }

    /// One tenant for an operation on it, which asks for a permission of its own.
    pub(crate) async fn tenant_row(&self, actor: &Actor, id: TenantId) -> Result<TenantRow, ControlError> {
        if !actor.sees_tenant(id)? {
            return Err(NOT_FOUND);
        }
        self.store.find_tenant(id).await?.ok_or(NOT_FOUND)
    }

    /// The tenant whose name this is, for whoever could make one.
    pub(crate) async fn tenant_named(&self, actor: &Actor, name: &str) -> Result<Option<TenantId>, ControlError> {
        actor.require_operator()?;
        Ok(self.store.find_tenant_by_name(name.trim()).await?)
    }

    /// The tenant that the person belongs to; `None` for operators and auditors.
    pub async fn own_tenant(&self, actor: &Actor) -> Result<Option<TenantRow>, ControlError> {
        match actor.reach()? {
            Reach::Everything => Ok(None),
            Reach::Tenant(own) | Reach::Own(own, _) => Ok(self.store.find_tenant(own).await?),
        }
    }

    /// Makes a tenant with its limits.
    pub async fn create_tenant(
        &self,
        actor: &Actor,
        draft: &TenantDraft,
        now: DateTime<Utc>,
    ) -> Result<TenantId, ControlError> {
        actor.require_permission(Permission::TenantsWrite)?;
        actor.require_operator()?;
        let values = checked(draft)?;
        let id = self.new_id(TenantId::new, now);
        let mut transaction = self.store.begin().await?;
        require_plan(&mut transaction, values.plan_id).await?;
        tenants::insert(&mut transaction, id, &values, now).await?;
        self.note(
            &mut transaction,
            actor,
            now,
            changed("tenant.create", id, None, Some(shown(&values))),
        )
        .await?;
        self.write_limits(&mut transaction, actor, &target(id), None, &draft.limits, now)
            .await?;
        commit(transaction).await?;
        Ok(id)
    }

    /// Changes a tenant together with its limits.
    pub async fn edit_tenant(
        &self,
        actor: &Actor,
        id: TenantId,
        read: TenantVersions,
        draft: &TenantDraft,
        now: DateTime<Utc>,
    ) -> Result<(), ControlError> {
        actor.require_permission(Permission::TenantsWrite)?;
        self.write_tenant(actor, id, read.tenant, draft, Some(read.limits), now)
            .await
    }

    /// Changes a tenant and leaves its limits alone, whatever the draft says of them.
    pub async fn edit_tenant_alone(
        &self,
        actor: &Actor,
        id: TenantId,
        version: i64,
        draft: &TenantDraft,
        now: DateTime<Utc>,
    ) -> Result<(), ControlError> {
        actor.require_permission(Permission::TenantsWrite)?;
        self.write_tenant(actor, id, version, draft, None, now).await
    }

    /// Changes a tenant, and its limits where their version is given.
    async fn write_tenant(
        &self,
        actor: &Actor,
        id: TenantId,
        version: i64,
        draft: &TenantDraft,
        limits: Option<i64>,
        now: DateTime<Utc>,
    ) -> Result<(), ControlError> {
        actor.require_operator()?;
        let values = checked(draft)?;
        let mut transaction = self.store.begin().await?;
        let row = lock(&mut transaction, id, version).await?;
        require_plan(&mut transaction, values.plan_id).await?;
        let before = TenantValues {
            name: row.tenant.name,
            plan_id: row.tenant.plan_id,
            priority_ceiling: row.tenant.priority_ceiling,
            has_strict_budgets: row.tenant.has_strict_budgets,
        };
        if limits.is_some() {
            self.write_limits(&mut transaction, actor, &target(id), limits, &draft.limits, now)
                .await?;
        }
        if before != values {
            tenants::update(&mut transaction, id, &values).await?;
            let change = changed("tenant.edit", id, Some(shown(&before)), Some(shown(&values)));
            self.note(&mut transaction, actor, now, change).await?;
        }
        commit(transaction).await
    }

    /// Refuses all of a tenant's requests from now on.
    pub async fn suspend_tenant(
        &self,
        actor: &Actor,
        id: TenantId,
        version: i64,
        now: DateTime<Utc>,
    ) -> Result<(), ControlError> {
        actor.require_permission(Permission::TenantsWrite)?;
        self.set_suspended(actor, id, version, Some(now), now).await
    }

    /// Lets a suspended tenant go on.
    pub async fn resume_tenant(
        &self,
        actor: &Actor,
        id: TenantId,
        version: i64,
        now: DateTime<Utc>,
    ) -> Result<(), ControlError> {
        actor.require_permission(Permission::TenantsWrite)?;
        self.set_suspended(actor, id, version, None, now).await
    }

    async fn set_suspended(
        &self,
        actor: &Actor,
        id: TenantId,
        version: i64,
        suspended_at: Option<DateTime<Utc>>,
        now: DateTime<Utc>,
    ) -> Result<(), ControlError> {
        actor.require_operator()?;
        let mut transaction = self.store.begin().await?;
        let row = lock(&mut transaction, id, version).await?;
        if row.tenant.suspended_at.is_some() == suspended_at.is_some() {
            return Ok(());
        }
        tenants::set_suspended(&mut transaction, id, suspended_at).await?;
        let action = if suspended_at.is_some() {
            "tenant.suspend"
        } else {
            "tenant.resume"
        };
        let before = json!({ "suspended_at": row.tenant.suspended_at });
        let after = json!({ "suspended_at": suspended_at });
        self.note(
            &mut transaction,
            actor,
            now,
            changed(action, id, Some(before), Some(after)),
        )
        .await?;
        commit(transaction).await
    }

    async fn monthly_filters(
        &self,
        tenants: impl IntoIterator<Item = TenantId>,
        now: DateTime<Utc>,
    ) -> Result<Vec<BudgetFilter>, ControlError> {
        let zone = self.zone().await?;
        let span = Period::Month.span(now, zone);
        Ok(tenants
            .into_iter()
            .map(|tenant| BudgetFilter {
                tenant: Some(tenant),
                ..BudgetFilter::everything(span)
            })
            .collect())
    }
}

const NOT_FOUND: ControlError = ControlError::NotFound { what: "tenant" };

fn target(id: TenantId) -> Target {
    Target::Node(Scope::Tenant(id))
}

fn checked(draft: &TenantDraft) -> Result<TenantValues, ControlError> {
    let mut fields = Fields::default();
    let name = fields.name("name", &draft.name);
    draft.limits.validate(&mut fields);
    fields.check()?;
    Ok(TenantValues {
        name,
        plan_id: draft.plan_id,
        priority_ceiling: draft.priority_ceiling,
        has_strict_budgets: draft.has_strict_budgets,
    })
}

async fn require_plan(transaction: &mut Transaction, plan: Option<PlanId>) -> Result<(), ControlError> {
    let Some(plan) = plan else { return Ok(()) };
    if plans::exists(transaction, plan).await? {
        Ok(())
    } else {
        Err(ControlError::field("plan_id", text!("there is no such plan")))
    }
}

async fn lock(transaction: &mut Transaction, id: TenantId, read: i64) -> Result<TenantRow, ControlError> {
    let row = tenants::lock(transaction, id).await?.ok_or(NOT_FOUND)?;
    if row.version == read {
        return Ok(row);
    }
    Err(ControlError::Conflict {
        what: "tenant",
        read,
        current: row.version,
    })
}

fn shown(values: &TenantValues) -> Value {
    json!({
        "name": values.name,
        "plan_id": values.plan_id,
        "priority_ceiling": values.priority_ceiling,
        "has_strict_budgets": values.has_strict_budgets,
    })
}

fn changed(action: &'static str, id: TenantId, before: Option<Value>, after: Option<Value>) -> Change {
    Change {
        action,
        subject: format!("tenant:{id}"),
        tenant_id: Some(id),
        before,
        after,
    }
}
