//! Limits on the nodes of the quota tree. Only operators write them: a node's own limit replaces that of its class, so
//! whoever sets one could raise it.

mod draft;
mod increase;
mod plain;
mod preview;

use chrono::{DateTime, Utc};
use domain::ids::{KeyId, LimitId};
use domain::limits::{Class, Limit, Scope, Target};
use domain::text;
use serde::Serialize;
use serde_json::{Value, json};
use store::limits::{LIMITS_OF_NODE_MAX, LimitFilter, NodeLimitRows};
use store::{Transaction, keys, limits, models, plans, tenants, upstreams};

use crate::actor::Reach;
use crate::audit::Change;
use crate::fields::Fields;
use crate::{Actor, Control, ControlError, commit};
use domain::management_tokens::Permission;

pub use draft::{CONCURRENCY_MAX, LimitDraft, LimitText, REQUEST_SECONDS_MAX, WINDOW_SECONDS_MAX};
pub use increase::{INCREASE_DAYS_MAX, INCREASE_REASON_CHARS_MAX, IncreaseDraft, IncreaseText, last_day};
pub use plain::{NodeLimits, NodeLimitsText, field_of, is_plain};
pub use preview::{Affected, LimitChange, LimitsPreview};

use draft::check_draft;
use plain::plain;

/// The limits on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeLimitsView {
    /// The plain ones, for the form.
    pub plain: NodeLimits,
    /// All of them.
    pub limits: Vec<Limit>,
    /// To be stated by whoever changes any of them.
    pub version: i64,
}

impl From<NodeLimitRows> for NodeLimitsView {
    fn from(rows: NodeLimitRows) -> Self {
        Self {
            plain: NodeLimits::of(&rows.limits),
            limits: rows.limits,
            version: rows.version,
        }
    }
}

impl Control {
    /// The limits that sit on `target` itself: everywhere for those who see everything, a manager's own tenant and what
    /// is in it, a member's own keys.
    pub async fn limits_of(&self, actor: &Actor, target: &Target) -> Result<NodeLimitsView, ControlError> {
        actor.require_permission(Permission::LimitsRead)?;
        if !self.sees(actor, target).await? || !self.exists(target).await? {
            return Err(ControlError::NotFound { what: "node" });
        }
        Ok(self.store.limits_of(target).await?.into())
    }

    /// Limits in the order in which they were set, those after this one, each with its node's version: all for those who see
    /// everything, or those of a manager's own tenant and what is in it. At most `count` and [`store::limits::LIMITS_PAGE_MAX`].
    pub async fn limits_after(
        &self,
        actor: &Actor,
        mut filter: LimitFilter,
        after: Option<LimitId>,
        count: i64,
    ) -> Result<Vec<(Limit, i64)>, ControlError> {
        actor.require_permission(Permission::LimitsRead)?;
        let mut owner = None;
        actor.narrow(&mut filter.tenant, &mut owner)?;
        if owner.is_some() {
            return Err(ControlError::Forbidden);
        }
        Ok(self.store.limits_after(&filter, after, count).await?)
    }

    /// One limit with its node's version.
    pub async fn limit_with_version(&self, actor: &Actor, id: LimitId) -> Result<(Limit, i64), ControlError> {
        actor.require_permission(Permission::LimitsRead)?;
        self.limit_within_reach(actor, id).await
    }

    /// What a limit sits on, for an operation that changes it.
    pub async fn target_of_limit(&self, actor: &Actor, id: LimitId) -> Result<Limit, ControlError> {
        actor.require_permission(Permission::LimitsWrite)?;
        Ok(self.limit_within_reach(actor, id).await?.0)
    }

    /// A limit that was just written, with its node's version, for whoever may write it.
    pub(crate) async fn written_limit(&self, actor: &Actor, id: LimitId) -> Result<(Limit, i64), ControlError> {
        actor.require_permission(Permission::LimitsWrite)?;
        self.limit_within_reach(actor, id).await
    }

    async fn limit_within_reach(&self, actor: &Actor, id: LimitId) -> Result<(Limit, i64), ControlError> {
        const NO_LIMIT: ControlError = ControlError::NotFound { what: "limit" };
        let (limit, version) = self.store.find_limit(id).await?.ok_or(NO_LIMIT)?;
        if self.sees(actor, &limit.target).await? {
            Ok((limit, version))
        } else {
            Err(NO_LIMIT)
        }
    }

    /// Makes the plain limits of a node what is given, and leaves its others alone. Returns the node's new version.
    pub async fn set_limits(
        &self,
        actor: &Actor,
        target: &Target,
        version: i64,
        wanted: &NodeLimits,
        now: DateTime<Utc>,
    ) -> Result<i64, ControlError> {
        actor.require_permission(Permission::LimitsWrite)?;
        actor.require_operator()?;
        let mut fields = Fields::default();
        wanted.validate(&mut fields);
        fields.check()?;
        let mut transaction = self.store.begin().await?;
        require_node(&mut transaction, target, now).await?;
        let version = self
            .write_limits(&mut transaction, actor, target, Some(version), wanted, now)
            .await?;
        commit(transaction).await?;
        Ok(version)
    }

    /// Sets one limit, in place of the one in its slot if there is any. Returns the node's new version.
    pub async fn set_limit(
        &self,
        actor: &Actor,
        target: &Target,
        version: i64,
        draft: &LimitDraft,
        now: DateTime<Utc>,
    ) -> Result<i64, ControlError> {
        actor.require_permission(Permission::LimitsWrite)?;
        let (mut transaction, rows) = self.begin_limit(actor, target, Some(version), draft, now).await?;
        let mut limit = self.limit(target, draft, now);
        let previous = rows.limits.iter().find(|old| old.slot() == limit.slot());
        if let Some(previous) = previous {
            limit.id = previous.id;
            limit.increase = previous.increase_beside(limit.value);
            limits::update(&mut transaction, &limit).await?;
        } else {
            require_room(room(&rows.limits), "dimension")?;
            limits::insert(&mut transaction, &limit, now).await?;
        }
        let change = changed("limit.set", target, previous, Some(&limit));
        self.note(&mut transaction, actor, now, change).await?;
        commit(transaction).await?;
        Ok(rows.version + 1)
    }

    /// Adds one limit in a slot that is free. Returns the node's new version.
    pub async fn add_limit(
        &self,
        actor: &Actor,
        target: &Target,
        version: i64,
        draft: &LimitDraft,
        now: DateTime<Utc>,
    ) -> Result<i64, ControlError> {
        match self.insert_limit(actor, target, Some(version), draft, now).await {
            Ok((_, version)) => Ok(version),
            Err(ControlError::Exists { .. }) => Err(taken()),
            Err(error) => Err(error),
        }
    }

    /// Adds one limit in a slot that is free, whatever else the node has; without a version nobody can have read anything
    /// that is lost. Returns the limit's id and the node's new version.
    pub async fn insert_limit(
        &self,
        actor: &Actor,
        target: &Target,
        version: Option<i64>,
        draft: &LimitDraft,
        now: DateTime<Utc>,
    ) -> Result<(LimitId, i64), ControlError> {
        actor.require_permission(Permission::LimitsWrite)?;
        let (mut transaction, rows) = self.begin_limit(actor, target, version, draft, now).await?;
        let limit = self.limit(target, draft, now);
        if let Some(other) = rows.limits.iter().find(|other| other.slot() == limit.slot()) {
            return Err(ControlError::Exists {
                what: "limit",
                id: other.id.to_string(),
            });
        }
        require_room(room(&rows.limits), "dimension")?;
        limits::insert(&mut transaction, &limit, now).await?;
        let change = changed("limit.set", target, None, Some(&limit));
        self.note(&mut transaction, actor, now, change).await?;
        commit(transaction).await?;
        Ok((limit.id, rows.version + 1))
    }

    async fn begin_limit(
        &self,
        actor: &Actor,
        target: &Target,
        version: Option<i64>,
        draft: &LimitDraft,
        now: DateTime<Utc>,
    ) -> Result<(Transaction, NodeLimitRows), ControlError> {
        actor.require_operator()?;
        check_draft(draft)?;
        let mut transaction = self.store.begin().await?;
        require_node(&mut transaction, target, now).await?;
        require_model(&mut transaction, draft).await?;
        let rows = limits::lock(&mut transaction, target).await?;
        if let Some(version) = version {
            require_version(&rows, version)?;
        }
        Ok((transaction, rows))
    }

    /// Takes one limit away, so that its class's or none applies. Returns the node's new version.
    pub async fn clear_limit(
        &self,
        actor: &Actor,
        target: &Target,
        version: i64,
        id: LimitId,
        now: DateTime<Utc>,
    ) -> Result<i64, ControlError> {
        actor.require_permission(Permission::LimitsWrite)?;
        actor.require_operator()?;
        let mut transaction = self.store.begin().await?;
        let rows = limits::lock(&mut transaction, target).await?;
        require_version(&rows, version)?;
        let limit = rows
            .limits
            .iter()
            .find(|limit| limit.id == id)
            .ok_or(ControlError::NotFound { what: "limit" })?;
        limits::remove(&mut transaction, limit, now).await?;
        self.note(
            &mut transaction,
            actor,
            now,
            changed("limit.clear", target, Some(limit), None),
        )
        .await?;
        commit(transaction).await?;
        Ok(rows.version + 1)
    }

    /// Makes the node's plain limits what is wanted, within the caller's transaction. Without a version the node is
    /// known to be new. Returns the node's new version.
    pub(crate) async fn write_limits(
        &self,
        transaction: &mut Transaction,
        actor: &Actor,
        target: &Target,
        version: Option<i64>,
        wanted: &NodeLimits,
        now: DateTime<Utc>,
    ) -> Result<i64, ControlError> {
        let rows = limits::lock(transaction, target).await?;
        if let Some(version) = version {
            require_version(&rows, version)?;
        }
        let mut changes = 0;
        let mut room = room(&rows.limits);
        for (dimension, value) in wanted.values() {
            let previous = rows.limits.iter().find(|limit| is_plain(limit, dimension));
            match (previous, value) {
                (None, None) => continue,
                (Some(previous), Some(value)) if previous.value == value => continue,
                (Some(previous), Some(value)) => {
                    // Burst, mode and gates of a limit that somebody refined stay.
                    let limit = Limit {
                        value,
                        increase: previous.increase_beside(value),
                        ..previous.clone()
                    };
                    limits::update(transaction, &limit).await?;
                }
                (None, Some(value)) => {
                    require_room(room, field_of(dimension))?;
                    room -= 1;
                    let limit = self.limit(target, &plain(dimension, value), now);
                    limits::insert(transaction, &limit, now).await?;
                }
                (Some(previous), None) => limits::remove(transaction, previous, now).await?,
            }
            changes += 1;
        }
        if changes > 0 {
            let change = Change {
                action: "limits.set",
                subject: subject(target),
                tenant_id: tenant_of(target),
                before: Some(shown(&NodeLimits::of(&rows.limits))),
                after: Some(shown(wanted)),
            };
            self.note(transaction, actor, now, change).await?;
        }
        Ok(rows.version + changes)
    }

    fn limit(&self, target: &Target, draft: &LimitDraft, now: DateTime<Utc>) -> Limit {
        Limit {
            id: self.new_id(LimitId::new, now),
            target: target.clone(),
            dimension: draft.dimension,
            value: draft.value,
            increase: None,
            window_seconds: draft.window_seconds,
            burst: draft.burst,
            period: draft.period,
            model: draft.model.clone(),
            priority: draft.priority,
            mode: draft.mode,
            gates: draft.gates,
            thresholds: draft.thresholds,
        }
    }

    async fn sees(&self, actor: &Actor, target: &Target) -> Result<bool, ControlError> {
        let reach = actor.reach()?;
        if reach == Reach::Everything {
            return Ok(true);
        }
        match target {
            Target::Node(Scope::Tenant(tenant)) | Target::OfTenant(tenant, _) => actor.sees_tenant(*tenant),
            Target::Node(Scope::User(tenant, user)) => Ok(match reach {
                Reach::Own(own, person) => own == *tenant && person.to_string() == **user,
                _ => actor.sees_tenant(*tenant)?,
            }),
            Target::Node(Scope::Key(id)) => self.sees_key(reach, *id).await,
            Target::Node(_) | Target::OfPlan(..) => Ok(false),
        }
    }

    /// What [`require_node`] asks, without keeping anybody from writing.
    async fn exists(&self, target: &Target) -> Result<bool, ControlError> {
        let store = &self.store;
        Ok(match target {
            Target::Node(Scope::Global) => true,
            Target::Node(Scope::ModelGroup(group)) => {
                models::group_exists(&mut store.begin_snapshot().await?, group).await?
            }
            Target::Node(Scope::Model(name)) => {
                let missing = models::missing(&mut store.begin_snapshot().await?, &[name.to_string()]).await?;
                missing.is_empty()
            }
            Target::Node(Scope::User(_, user)) if user.is_empty() => false,
            Target::OfTenant(_, Class::Tenant) => false,
            Target::Node(Scope::Tenant(id) | Scope::User(id, _)) | Target::OfTenant(id, _) => {
                store.find_tenant(*id).await?.is_some()
            }
            Target::Node(Scope::Key(id)) => store.find_key(*id).await?.is_some(),
            Target::Node(Scope::Upstream(id)) => store.find_upstream(*id).await?.is_some(),
            Target::OfPlan(id, _) => store.find_plan(*id).await?.is_some(),
        })
    }

    async fn sees_key(&self, reach: Reach, id: KeyId) -> Result<bool, ControlError> {
        let key = self.store.find_key(id).await?;
        Ok(key.is_some_and(|key| match reach {
            Reach::Everything => true,
            Reach::Tenant(own) => key.tenant_id == own,
            Reach::Own(own, person) => key.tenant_id == own && key.owner_id == Some(person),
        }))
    }
}

/// That the node exists. An end user needs no record, so any name of one will do. A tenant has no tenants below it.
async fn require_node(transaction: &mut Transaction, target: &Target, now: DateTime<Utc>) -> Result<(), ControlError> {
    let (exists, what) = match target {
        Target::Node(Scope::Global) => (true, "node"),
        Target::Node(Scope::ModelGroup(group)) => (models::group_exists(transaction, group).await?, "model group"),
        Target::Node(Scope::Model(name)) => (models::lock(transaction, name, now).await?.is_some(), "model"),
        Target::Node(Scope::User(_, user)) if user.is_empty() => (false, "user"),
        Target::OfTenant(_, Class::Tenant) => (false, "class"),
        Target::Node(Scope::Tenant(id) | Scope::User(id, _)) | Target::OfTenant(id, _) => {
            (tenants::lock(transaction, *id).await?.is_some(), "tenant")
        }
        Target::Node(Scope::Key(id)) => (keys::lock(transaction, *id).await?.is_some(), "key"),
        Target::Node(Scope::Upstream(id)) => (upstreams::lock(transaction, *id).await?.is_some(), "upstream"),
        Target::OfPlan(id, _) => (plans::exists(transaction, *id).await?, "plan"),
    };
    if exists {
        Ok(())
    } else {
        Err(ControlError::NotFound { what })
    }
}

/// That the model exists whose requests alone are to count.
async fn require_model(transaction: &mut Transaction, draft: &LimitDraft) -> Result<(), ControlError> {
    let Some(model) = &draft.model else { return Ok(()) };
    if models::missing(transaction, &[model.to_string()]).await?.is_empty() {
        Ok(())
    } else {
        Err(ControlError::field("model", text!("there is no such model")))
    }
}

/// What whoever adds a limit is told whose slot is not free.
fn taken() -> ControlError {
    ControlError::field(
        "dimension",
        text!(
            "there is a limit for exactly this already; change that one, or choose another window, period, model or priority"
        ),
    )
}

fn require_version(rows: &NodeLimitRows, read: i64) -> Result<(), ControlError> {
    if rows.version == read {
        return Ok(());
    }
    Err(ControlError::Conflict {
        what: "set of limits",
        read,
        current: rows.version,
    })
}

fn require_room(room: i64, field: &'static str) -> Result<(), ControlError> {
    if room > 0 {
        return Ok(());
    }
    Err(ControlError::field(
        field,
        text!("a node has at most {count} limits", count = LIMITS_OF_NODE_MAX),
    ))
}

fn room(limits: &[Limit]) -> i64 {
    LIMITS_OF_NODE_MAX.saturating_sub(limits.len() as i64)
}

fn subject(target: &Target) -> String {
    match target {
        Target::Node(scope) => scope.to_string(),
        Target::OfTenant(tenant, class) => format!("tenant:{tenant}/every {}", class.as_str()),
        Target::OfPlan(plan, class) => format!("plan:{plan}/every {}", class.as_str()),
    }
}

fn tenant_of(target: &Target) -> Option<domain::ids::TenantId> {
    match target {
        Target::Node(Scope::Tenant(id) | Scope::User(id, _)) | Target::OfTenant(id, _) => Some(*id),
        Target::Node(_) | Target::OfPlan(..) => None,
    }
}

fn shown<T: Serialize>(value: &T) -> Value {
    serde_json::to_value(value).unwrap_or_else(|error| json!({ "unreadable": error.to_string() }))
}

fn changed(action: &'static str, target: &Target, before: Option<&Limit>, after: Option<&Limit>) -> Change {
    Change {
        action,
        subject: subject(target),
        tenant_id: tenant_of(target),
        before: before.map(shown),
        after: after.map(shown),
    }
}

#[cfg(test)]
mod tests;
