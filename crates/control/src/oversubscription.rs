//! Where children may together use more than their parent has. Allowed, and often meant: it says who can be refused
//! although their own limit has room.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use domain::ids::TenantId;
use domain::limits::{Class, Limit, Scope, Slot, effective};
use store::limit_tree::LimitTree;

use crate::actor::Reach;
use crate::{Actor, Control, ControlError};

/// A parent whose children may use more than it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Oversubscription {
    /// The parent.
    pub parent: Scope,
    /// What kind its children are: tenants of the installation, or users or keys of a tenant.
    pub each: Class,
    /// What is limited.
    pub slot: Slot,
    /// What the parent has; the unit is that of the slot's dimension.
    pub parent_value: u64,
    /// What its children have together, those without such a limit left out.
    pub children_sum: u64,
    /// How many children have such a limit.
    pub children_count: u64,
}

impl Oversubscription {
    /// How much more the children have than their parent.
    pub fn excess(&self) -> u64 {
        self.children_sum.saturating_sub(self.parent_value)
    }
}

/// What children of one kind may use together, slot by slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowances {
    slots: HashMap<Slot, Allowance>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Allowance {
    sum: u64,
    count: u64,
}

impl Allowances {
    /// Adds what `count` children have together in a slot.
    pub fn add(&mut self, slot: Slot, sum: u64, count: u64) {
        let allowance = self.slots.entry(slot).or_default();
        allowance.sum = allowance.sum.saturating_add(sum);
        allowance.count = allowance.count.saturating_add(count);
    }

    /// Adds one child's limits in force at `at`.
    pub fn add_child(&mut self, limits: &[Limit], at: DateTime<Utc>) {
        for limit in limits {
            self.add(limit.slot(), limit.value_at(at), 1);
        }
    }
}

/// The slots in which the children may together use more than the parent at `at`, in the order of the parent's limits. Caps
/// on single requests do not add up.
pub fn oversubscribed(
    parent: &Scope,
    limits: &[Limit],
    each: Class,
    children: &Allowances,
    at: DateTime<Utc>,
) -> Vec<Oversubscription> {
    limits
        .iter()
        .filter(|limit| !limit.dimension.is_request_cap())
        .filter_map(|limit| {
            let slot = limit.slot();
            let value = limit.value_at(at);
            let allowance = children.slots.get(&slot).filter(|all| all.sum > value)?;
            Some(Oversubscription {
                parent: parent.clone(),
                each,
                slot,
                parent_value: value,
                children_sum: allowance.sum,
                children_count: allowance.count,
            })
        })
        .collect()
}

impl Control {
    /// Every parent whose children may use more than it has: tenants against the installation, and the users' and keys'
    /// own limits against their tenant's. A tenant has its own limits and those of its plan; limits of each user and each
    /// key are left out, as they are meant to add up to more. Everything for those who see everything, a manager's own
    /// tenant.
    pub async fn oversubscriptions(
        &self,
        actor: &Actor,
        now: DateTime<Utc>,
    ) -> Result<Vec<Oversubscription>, ControlError> {
        let only = match actor.reach()? {
            Reach::Everything => None,
            Reach::Tenant(own) => Some(own),
            Reach::Own(..) => return Err(ControlError::Forbidden),
        };
        Ok(found_in(&self.store.limit_tree(now).await?, only, now))
    }
}

/// Every parent of this tree whose children may use more than it has, or one tenant alone.
pub(crate) fn found_in(tree: &LimitTree, only: Option<TenantId>, now: DateTime<Utc>) -> Vec<Oversubscription> {
    let mut below: HashMap<(TenantId, Class), Allowances> = HashMap::new();
    for sum in &tree.below_tenants {
        let allowances = below.entry((sum.tenant_id, sum.each)).or_default();
        allowances.add(sum.slot.clone(), sum.sum, sum.count);
    }
    let mut tenants = Allowances::default();
    let mut found = Vec::new();
    for tenant in &tree.tenants {
        let of_plan = tenant.plan_id.and_then(|plan| tree.plans.get(&plan));
        let limits = effective([&tenant.own].into_iter().chain(of_plan).map(|limits| &limits[..]));
        tenants.add_child(&limits, now);
        if only.is_some_and(|own| own != tenant.id) {
            continue;
        }
        for each in [Class::User, Class::Key] {
            if let Some(allowances) = below.get(&(tenant.id, each)) {
                found.extend(oversubscribed(
                    &Scope::Tenant(tenant.id),
                    &limits,
                    each,
                    allowances,
                    now,
                ));
            }
        }
    }
    if only.is_none() {
        found.splice(
            ..0,
            oversubscribed(&Scope::Global, &tree.global, Class::Tenant, &tenants, now),
        );
    }
    found
}

#[cfg(test)]
mod tests;
