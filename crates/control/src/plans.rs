//! Plans: named sets of limits and a priority ceiling, made by operators and given to tenants. A tenant's own settings
//! replace its plan's, slot by slot.

use chrono::{DateTime, Utc};
use domain::ids::{PlanId, TenantId};
use domain::limits::{Class, Limit, Scope, Target};
use domain::priority::Priority;
use domain::text;
use serde_json::{Value, json};
use store::plans::{PLANS_MAX, PlanRow, PlanValues};
use store::{Transaction, plans};

use crate::audit::Change;
use crate::fields::Fields;
use crate::{Actor, Control, ControlError, commit};
use domain::management_tokens::Permission;

/// Tenants that a plan's page names; their number is known beyond it.
pub const PLAN_TENANTS_MAX: i64 = 500;

/// What can be said about a plan in one form. Its limits are set on each [`Class`] of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanDraft {
    /// Fields `name` and `priority_ceiling`.
    pub name: String,
    /// The highest priority of tenants that state none of their own.
    pub priority_ceiling: Priority,
}

/// A plan on its own page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanView {
    /// The plan.
    pub row: PlanRow,
    /// Its limits, class by class, in the order of [`Class::ALL`].
    pub limits: Vec<(Class, Vec<Limit>)>,
    /// The tenants on it by name, at most [`PLAN_TENANTS_MAX`].
    pub tenants: Vec<(TenantId, String)>,
}

/// What a tenant has of its own and what its plan gives it, for itself or for each node of a class below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitSources {
    /// The tenant itself ([`Class::Tenant`]), or each user, end user or key.
    pub class: Class,
    /// The tenant's own; they replace the plan's slot by slot.
    pub own: Vec<Limit>,
    /// The plan's.
    pub plan: Vec<Limit>,
}

impl LimitSources {
    /// The plan's limit that this own one replaces.
    pub fn replaced_by(&self, own: &Limit) -> Option<&Limit> {
        self.plan.iter().find(|limit| limit.slot() == own.slot())
    }

    /// The plan's limits that are in force, because the tenant has none in their slots.
    pub fn from_plan(&self) -> impl Iterator<Item = &Limit> {
        self.plan
            .iter()
            .filter(|limit| self.own.iter().all(|own| own.slot() != limit.slot()))
    }
}

impl Control {
    /// Plans in force, by name.
    pub async fn plans(&self, actor: &Actor) -> Result<Vec<PlanRow>, ControlError> {
        actor.require_permission(Permission::PlansRead)?;
        actor.require_everything()?;
        Ok(self.store.plans().await?)
    }

    /// One plan with its limits and the tenants on it.
    pub async fn plan(&self, actor: &Actor, id: PlanId) -> Result<PlanView, ControlError> {
        actor.require_permission(Permission::PlansRead)?;
        actor.require_everything()?;
        let row = self.store.find_plan(id).await?.ok_or(NOT_FOUND)?;
        let mut limits = Vec::new();
        for class in Class::ALL {
            let rows = self.store.limits_of(&Target::OfPlan(id, class)).await?;
            limits.push((class, rows.limits));
        }
        Ok(PlanView {
            row,
            limits,
            tenants: self.store.tenants_on_plan(id, PLAN_TENANTS_MAX).await?,
        })
    }

    /// One plan for an operation on it, which asks for a permission of its own.
    pub(crate) async fn plan_row(&self, actor: &Actor, id: PlanId) -> Result<PlanRow, ControlError> {
        actor.require_everything()?;
        self.store.find_plan(id).await?.ok_or(NOT_FOUND)
    }

    /// The plan whose name this is, for whoever could make one.
    pub(crate) async fn plan_named(&self, actor: &Actor, name: &str) -> Result<Option<PlanId>, ControlError> {
        actor.require_operator()?;
        let name = name.trim().to_lowercase();
        let plans = self.store.plans().await?;
        let named = plans.iter().find(|row| row.plan.name.to_lowercase() == name);
        Ok(named.map(|row| row.plan.id))
    }

    /// What a tenant and each node below it may use, with what comes from its plan: any tenant's, or a manager's own.
    pub async fn limit_sources(&self, actor: &Actor, tenant: TenantId) -> Result<Vec<LimitSources>, ControlError> {
        actor.require_permission(Permission::LimitsRead)?;
        const NO_TENANT: ControlError = ControlError::NotFound { what: "tenant" };
        if !actor.sees_tenant(tenant)? {
            return Err(NO_TENANT);
        }
        let row = self.store.find_tenant(tenant).await?.ok_or(NO_TENANT)?;
        let mut sources = Vec::new();
        for class in Class::ALL {
            let own = match class {
                Class::Tenant => Target::Node(Scope::Tenant(tenant)),
                Class::User | Class::EndUser | Class::Key => Target::OfTenant(tenant, class),
            };
            let plan = match row.tenant.plan_id {
                Some(plan) => self.store.limits_of(&Target::OfPlan(plan, class)).await?.limits,
                None => Vec::new(),
            };
            sources.push(LimitSources {
                class,
                own: self.store.limits_of(&own).await?.limits,
                plan,
            });
        }
        Ok(sources)
    }

    /// Makes a plan, without limits as yet.
    pub async fn create_plan(
        &self,
        actor: &Actor,
        draft: &PlanDraft,
        now: DateTime<Utc>,
    ) -> Result<PlanId, ControlError> {
        actor.require_permission(Permission::PlansWrite)?;
        actor.require_operator()?;
        let values = checked(draft)?;
        let id = self.new_id(PlanId::new, now);
        let mut transaction = self.store.begin().await?;
        if plans::count_plans(&mut transaction).await? >= PLANS_MAX {
            return Err(ControlError::field(
                "name",
                text!("there are {most} plans already", most = PLANS_MAX),
            ));
        }
        plans::insert(&mut transaction, id, &values, now).await?;
        let change = changed("plan.create", id, None, Some(shown(&values)));
        self.note(&mut transaction, actor, now, change).await?;
        commit(transaction).await?;
        Ok(id)
    }

    /// Changes a plan's name and ceiling.
    pub async fn edit_plan(
        &self,
        actor: &Actor,
        id: PlanId,
        version: i64,
        draft: &PlanDraft,
        now: DateTime<Utc>,
    ) -> Result<(), ControlError> {
        actor.require_permission(Permission::PlansWrite)?;
        actor.require_operator()?;
        let values = checked(draft)?;
        let mut transaction = self.store.begin().await?;
        let row = lock(&mut transaction, id, version).await?;
        let before = values_of(row);
        if before == values {
            return Ok(());
        }
        plans::update(&mut transaction, id, &values).await?;
        let change = changed("plan.edit", id, Some(shown(&before)), Some(shown(&values)));
        self.note(&mut transaction, actor, now, change).await?;
        commit(transaction).await
    }

    /// Removes a plan that no tenant is on, and its limits with it.
    pub async fn remove_plan(
        &self,
        actor: &Actor,
        id: PlanId,
        version: i64,
        now: DateTime<Utc>,
    ) -> Result<(), ControlError> {
        actor.require_permission(Permission::PlansWrite)?;
        actor.require_operator()?;
        let mut transaction = self.store.begin().await?;
        let row = lock(&mut transaction, id, version).await?;
        if row.tenants > 0 {
            let message = match row.tenants {
                1 => text!("one tenant is on this plan; give it another one first"),
                many => text!("{many} tenants are on this plan; give them another one first", many),
            };
            return Err(ControlError::field("plan", message));
        }
        plans::remove(&mut transaction, id, now).await?;
        let change = changed("plan.remove", id, Some(shown(&values_of(row))), None);
        self.note(&mut transaction, actor, now, change).await?;
        commit(transaction).await
    }
}

const NOT_FOUND: ControlError = ControlError::NotFound { what: "plan" };

fn checked(draft: &PlanDraft) -> Result<PlanValues, ControlError> {
    let mut fields = Fields::default();
    let name = fields.name("name", &draft.name);
    fields.check()?;
    Ok(PlanValues {
        name,
        priority_ceiling: draft.priority_ceiling,
    })
}

fn values_of(row: PlanRow) -> PlanValues {
    PlanValues {
        name: row.plan.name,
        priority_ceiling: row.plan.priority_ceiling,
    }
}

async fn lock(transaction: &mut Transaction, id: PlanId, read: i64) -> Result<PlanRow, ControlError> {
    let row = plans::lock(transaction, id).await?.ok_or(NOT_FOUND)?;
    if row.version == read {
        return Ok(row);
    }
    Err(ControlError::Conflict {
        what: "plan",
        read,
        current: row.version,
    })
}

fn shown(values: &PlanValues) -> Value {
    json!({ "name": values.name, "priority_ceiling": values.priority_ceiling })
}

fn changed(action: &'static str, id: PlanId, before: Option<Value>, after: Option<Value>) -> Change {
    Change {
        action,
        subject: format!("plan:{id}"),
        tenant_id: None,
        before,
        after,
    }
}
