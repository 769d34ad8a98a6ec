//! What saving limits would change, before anything is saved: slot by slot, for whom, and where children may then use more
//! than their parent has.

use chrono::{DateTime, Utc};
use domain::ids::{KeyId, LimitId, PersonId, PlanId, TenantId};
use domain::limits::{Class, Limit, Scope, Slot, Target, effective};
use store::keys;
use store::limit_tree::{LimitSum, LimitTree};

use super::draft::{LimitDraft, check_draft};
use super::increase::{IncreaseDraft, checked};
use super::plain::{NodeLimits, is_plain, plain};
use super::{require_model, require_room, room, taken};
use crate::fields::Fields;
use crate::oversubscription::{Oversubscription, found_in};
use crate::tenants::{TenantDraft, TenantVersions};
use crate::{Actor, Control, ControlError};

/// What saving would change.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LimitsPreview {
    /// Slot by slot; empty when everything stays.
    pub changes: Vec<LimitChange>,
    /// Whom it would concern.
    pub affected: Affected,
    /// Where children could use more than their parent, in the slots that change and with their new values.
    pub oversubscriptions: Vec<Oversubscription>,
}

/// One slot; at least one side is there.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitChange {
    /// What tells the limit apart.
    pub slot: Slot,
    /// As it is: the target's own limit, or the one of a class or plan that holds without one.
    pub before: Option<Limit>,
    /// As it would be.
    pub after: Option<Limit>,
}

/// Whom a change would concern.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Affected {
    /// Tenants: all for the installation, those on it for a plan; one for anything of a tenant; none where they are not
    /// what is counted.
    pub tenants: u64,
    /// Nodes of a class that have a limit of their own in a slot that changes, and keep it.
    pub keeping: u64,
    /// Keys that work, of the tenant that the change is about.
    pub keys: u64,
}

impl Control {
    /// What [`Self::set_limits`] would change.
    pub async fn preview_limits(
        &self,
        actor: &Actor,
        target: &Target,
        version: i64,
        wanted: &NodeLimits,
        now: DateTime<Utc>,
    ) -> Result<LimitsPreview, ControlError> {
        actor.require_operator()?;
        let mut fields = Fields::default();
        wanted.validate(&mut fields);
        fields.check()?;
        let view = self.limits_of(actor, target).await?;
        require_read(view.version, version)?;
        let after = self.with_plain(target, &view.limits, wanted, now);
        self.preview(target, &view.limits, after, now).await
    }

    /// What [`Self::set_limit`] would change.
    pub async fn preview_limit(
        &self,
        actor: &Actor,
        target: &Target,
        version: i64,
        draft: &LimitDraft,
        now: DateTime<Utc>,
    ) -> Result<LimitsPreview, ControlError> {
        actor.require_operator()?;
        check_draft(draft)?;
        let view = self.limits_of(actor, target).await?;
        require_read(view.version, version)?;
        let mut limit = self.limit(target, draft, now);
        let mut after = view.limits.clone();
        match after.iter_mut().find(|old| old.slot() == limit.slot()) {
            Some(old) => {
                limit.increase = old.increase_beside(limit.value);
                *old = limit;
            }
            None => after.push(limit),
        }
        self.preview(target, &view.limits, after, now).await
    }

    /// What [`Self::add_limit`] would change; it is refused where that would be.
    pub async fn preview_new_limit(
        &self,
        actor: &Actor,
        target: &Target,
        version: i64,
        draft: &LimitDraft,
        now: DateTime<Utc>,
    ) -> Result<LimitsPreview, ControlError> {
        actor.require_operator()?;
        check_draft(draft)?;
        let view = self.limits_of(actor, target).await?;
        require_model(&mut self.store.begin_snapshot().await?, draft).await?;
        require_read(view.version, version)?;
        let limit = self.limit(target, draft, now);
        if view.limits.iter().any(|other| other.slot() == limit.slot()) {
            return Err(taken());
        }
        require_room(room(&view.limits), "dimension")?;
        let mut after = view.limits.clone();
        after.push(limit);
        self.preview(target, &view.limits, after, now).await
    }

    /// What [`Self::increase_limit`] would change; it is refused where that would be.
    pub async fn preview_increase(
        &self,
        actor: &Actor,
        target: &Target,
        version: i64,
        id: LimitId,
        draft: &IncreaseDraft,
        now: DateTime<Utc>,
    ) -> Result<LimitsPreview, ControlError> {
        actor.require_operator()?;
        let zone = self.zone().await?;
        let view = self.limits_of(actor, target).await?;
        require_read(view.version, version)?;
        let mut after = view.limits.clone();
        let limit = after
            .iter_mut()
            .find(|limit| limit.id == id)
            .ok_or(ControlError::NotFound { what: "limit" })?;
        limit.increase = Some(checked(draft, limit, now, zone)?);
        self.preview(target, &view.limits, after, now).await
    }

    /// What [`Self::edit_tenant`] would change for the tenant as a whole: its own limits, and those of another plan.
    pub async fn preview_tenant(
        &self,
        actor: &Actor,
        id: TenantId,
        read: TenantVersions,
        draft: &TenantDraft,
        now: DateTime<Utc>,
    ) -> Result<LimitsPreview, ControlError> {
        actor.require_operator()?;
        let mut fields = Fields::default();
        draft.limits.validate(&mut fields);
        fields.check()?;
        let tenant = self.tenant(actor, id, now).await?;
        require_read(tenant.row.version, read.tenant)?;
        require_read(tenant.limits.version, read.limits)?;
        let target = Target::Node(Scope::Tenant(id));
        let own = self.with_plain(&target, &tenant.limits.limits, &draft.limits, now);
        let mut tree = self.store.limit_tree(now).await?;
        let before = in_force(&tree, &tenant.limits.limits, tenant.row.tenant.plan_id);
        let after = in_force(&tree, &own, draft.plan_id);
        if let Some(place) = tree.tenants.iter_mut().find(|tenant| tenant.id == id) {
            place.own = own;
            place.plan_id = draft.plan_id;
        }
        let changes = changes(&before, &after);
        Ok(LimitsPreview {
            affected: self.affected(&target, &tree, &changes, now).await?,
            oversubscriptions: concerning(&target, None, &tree, &changes, now),
            changes,
        })
    }

    async fn preview(
        &self,
        target: &Target,
        before: &[Limit],
        after: Vec<Limit>,
        now: DateTime<Utc>,
    ) -> Result<LimitsPreview, ControlError> {
        let mut wider = Vec::new();
        for target in self.wider(target).await? {
            wider.push(self.store.limits_of(&target).await?.limits);
        }
        let in_force = |own: &[Limit]| effective([own].into_iter().chain(wider.iter().map(|limits| &limits[..])));
        let changes = changes(&in_force(before), &in_force(&after));
        let mut tree = self.store.limit_tree(now).await?;
        let tenant_of_key = match target {
            Target::Node(Scope::Key(id)) => self.tenant_of_key(*id).await?,
            _ => None,
        };
        put(&mut tree, target, tenant_of_key, before, after, now);
        Ok(LimitsPreview {
            affected: self.affected(target, &tree, &changes, now).await?,
            oversubscriptions: concerning(target, tenant_of_key, &tree, &changes, now),
            changes,
        })
    }

    /// Whose limits hold where the target has none of its own, from the narrowest to the widest.
    async fn wider(&self, target: &Target) -> Result<Vec<Target>, ControlError> {
        let (tenant, classes) = match target {
            Target::Node(Scope::Tenant(id)) => (Some(*id), &[Class::Tenant][..]),
            Target::Node(Scope::User(id, user)) if user.parse::<PersonId>().is_ok() => (Some(*id), &[Class::User][..]),
            Target::Node(Scope::User(id, _)) | Target::OfTenant(id, Class::EndUser) => {
                (Some(*id), &[Class::EndUser, Class::User][..])
            }
            Target::Node(Scope::Key(id)) => (self.tenant_of_key(*id).await?, &[Class::Key][..]),
            Target::OfTenant(id, class) => (Some(*id), std::slice::from_ref(class)),
            Target::OfPlan(id, Class::EndUser) => return Ok(vec![Target::OfPlan(*id, Class::User)]),
            Target::Node(_) | Target::OfPlan(..) => return Ok(Vec::new()),
        };
        let Some(tenant) = tenant else { return Ok(Vec::new()) };
        let found = self.store.find_tenant(tenant).await?;
        let plan = found.and_then(|row| row.tenant.plan_id);
        let wider = classes.iter().flat_map(|class| {
            let of_tenant = (*class != Class::Tenant).then_some(Target::OfTenant(tenant, *class));
            [of_tenant, plan.map(|plan| Target::OfPlan(plan, *class))]
        });
        Ok(wider.flatten().filter(|wider| wider != target).collect())
    }

    async fn tenant_of_key(&self, id: KeyId) -> Result<Option<TenantId>, ControlError> {
        Ok(self.store.find_key(id).await?.map(|key| key.tenant_id))
    }

    async fn affected(
        &self,
        target: &Target,
        tree: &LimitTree,
        changes: &[LimitChange],
        now: DateTime<Utc>,
    ) -> Result<Affected, ControlError> {
        let mut affected = Affected::default();
        let changed = |slot: &Slot| changes.iter().any(|change| change.slot == *slot);
        match target {
            Target::Node(Scope::Global) => affected.tenants = tree.tenants.len() as u64,
            Target::Node(Scope::Tenant(id)) => {
                affected.tenants = 1;
                let mut snapshot = self.store.begin_snapshot().await?;
                affected.keys = keys::count_live(&mut snapshot, *id, None, now).await?.unsigned_abs();
            }
            Target::OfTenant(id, class) => {
                affected.tenants = 1;
                let sums = tree.below_tenants.iter();
                let own = sums.filter(|sum| sum.tenant_id == *id && sum.each == *class && changed(&sum.slot));
                affected.keeping = own.map(|sum| sum.count).max().unwrap_or(0);
            }
            Target::OfPlan(id, class) => {
                let on_plan = || tree.tenants.iter().filter(|tenant| tenant.plan_id == Some(*id));
                affected.tenants = on_plan().count() as u64;
                if *class == Class::Tenant {
                    let keeps = |limits: &[Limit]| limits.iter().any(|limit| changed(&limit.slot()));
                    affected.keeping = on_plan().filter(|tenant| keeps(&tenant.own)).count() as u64;
                }
            }
            Target::Node(_) => {}
        }
        Ok(affected)
    }

    /// A node's limits once its plain ones are what is wanted.
    fn with_plain(&self, target: &Target, limits: &[Limit], wanted: &NodeLimits, now: DateTime<Utc>) -> Vec<Limit> {
        let mut after = limits.to_vec();
        for (dimension, value) in wanted.values() {
            let place = after.iter().position(|limit| is_plain(limit, dimension));
            match (place, value) {
                (None, None) => {}
                (Some(place), Some(value)) => {
                    after[place].increase = after[place].increase_beside(value);
                    after[place].value = value;
                }
                (None, Some(value)) => after.push(self.limit(target, &plain(dimension, value), now)),
                (Some(place), None) => {
                    after.remove(place);
                }
            }
        }
        after
    }
}

fn require_read(current: i64, read: i64) -> Result<(), ControlError> {
    if current == read {
        return Ok(());
    }
    Err(ControlError::Conflict {
        what: "set of limits",
        read,
        current,
    })
}

/// A tenant's limits together with those that a plan gives it.
fn in_force(tree: &LimitTree, own: &[Limit], plan: Option<PlanId>) -> Vec<Limit> {
    let of_plan = plan.and_then(|plan| tree.plans.get(&plan));
    effective([own].into_iter().chain(of_plan.map(|limits| &limits[..])))
}

/// The slots that differ: first those that were there, in their order, then the new ones.
fn changes(before: &[Limit], after: &[Limit]) -> Vec<LimitChange> {
    let find = |limits: &[Limit], slot: &Slot| limits.iter().find(|limit| limit.slot() == *slot).cloned();
    let were = before.iter().map(|limit| LimitChange {
        slot: limit.slot(),
        before: Some(limit.clone()),
        after: find(after, &limit.slot()),
    });
    let are_new = after
        .iter()
        .filter(|limit| find(before, &limit.slot()).is_none())
        .map(|limit| LimitChange {
            slot: limit.slot(),
            before: None,
            after: Some(limit.clone()),
        });
    were.chain(are_new).filter(differs).collect()
}

/// Whether anything is different for requests. Ids are not: a tenant's own limit may have taken the place of an equal one of
/// its plan.
fn differs(change: &LimitChange) -> bool {
    let figures = |limit: &Limit| {
        (
            limit.value,
            limit.increase,
            limit.burst,
            limit.mode,
            limit.gates,
            limit.thresholds,
        )
    };
    change.before.as_ref().map(figures) != change.after.as_ref().map(figures)
}

/// Puts a node's new limits in the place of its old ones.
fn put(
    tree: &mut LimitTree,
    target: &Target,
    tenant_of_key: Option<TenantId>,
    before: &[Limit],
    after: Vec<Limit>,
    now: DateTime<Utc>,
) {
    let (tenant, each) = match (target, tenant_of_key) {
        (Target::Node(Scope::Global), _) => return tree.global = after,
        (Target::OfPlan(id, Class::Tenant), _) => {
            tree.plans.insert(*id, after);
            return;
        }
        (Target::Node(Scope::Tenant(id)), _) => {
            if let Some(tenant) = tree.tenants.iter_mut().find(|tenant| tenant.id == *id) {
                tenant.own = after;
            }
            return;
        }
        (Target::Node(Scope::User(tenant, _)), _) => (*tenant, Class::User),
        (Target::Node(Scope::Key(_)), Some(tenant)) => (tenant, Class::Key),
        _ => return,
    };
    for limit in before {
        let sum = sum_of(&mut tree.below_tenants, tenant, each, limit.slot());
        sum.sum = sum.sum.saturating_sub(limit.value_at(now));
        sum.count = sum.count.saturating_sub(1);
    }
    for limit in &after {
        let sum = sum_of(&mut tree.below_tenants, tenant, each, limit.slot());
        sum.sum = sum.sum.saturating_add(limit.value_at(now));
        sum.count += 1;
    }
}

fn sum_of(sums: &mut Vec<LimitSum>, tenant_id: TenantId, each: Class, slot: Slot) -> &mut LimitSum {
    let place = sums
        .iter()
        .position(|sum| sum.tenant_id == tenant_id && sum.each == each && sum.slot == slot);
    let place = place.unwrap_or_else(|| {
        sums.push(LimitSum {
            tenant_id,
            each,
            slot,
            sum: 0,
            count: 0,
        });
        sums.len() - 1
    });
    &mut sums[place]
}

/// What is found in the changed tree about the target, as a parent or as one of the children, in the slots that change.
fn concerning(
    target: &Target,
    tenant_of_key: Option<TenantId>,
    tree: &LimitTree,
    changes: &[LimitChange],
    now: DateTime<Utc>,
) -> Vec<Oversubscription> {
    let as_parent = match target {
        Target::Node(scope @ (Scope::Global | Scope::Tenant(_))) => Some(scope.clone()),
        _ => None,
    };
    let as_child = match (target, tenant_of_key) {
        (Target::Node(Scope::Tenant(_)) | Target::OfPlan(_, Class::Tenant), _) => Some((Scope::Global, Class::Tenant)),
        (Target::Node(Scope::User(tenant, _)), _) => Some((Scope::Tenant(*tenant), Class::User)),
        (Target::Node(Scope::Key(_)), Some(tenant)) => Some((Scope::Tenant(tenant), Class::Key)),
        _ => None,
    };
    found_in(tree, None, now)
        .into_iter()
        .filter(|one| changes.iter().any(|change| change.slot == one.slot))
        .filter(|one| {
            as_parent.as_ref() == Some(&one.parent) || as_child.as_ref() == Some(&(one.parent.clone(), one.each))
        })
        .collect()
}

#[cfg(test)]
mod tests;
