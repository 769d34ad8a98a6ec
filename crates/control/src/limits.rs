//! Limits on the nodes of the quota tree. Only operators write them: a node's own limit replaces that of its class, so
//! whoever sets one could raise it.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use domain::ids::{KeyId, LimitId};
use domain::limits::{DEFAULT_WINDOW_SECONDS, Dimension, Gates, Limit, Mode, Scope, Target};
use domain::money::Nanos;
use domain::periods::Period;
use domain::priority::Priority;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::limits::{LIMITS_OF_NODE_MAX, NodeLimitRows};
use store::{Transaction, keys, limits, models, plans, tenants, upstreams};

use crate::actor::Reach;
use crate::audit::Change;
use crate::fields::{COUNT_MAX, Fields};
use crate::{Actor, Control, ControlError, commit};

/// The longest window of a rate, seconds.
pub const WINDOW_SECONDS_MAX: u32 = 86_400;
/// The longest time-out of one request, seconds.
pub const REQUEST_SECONDS_MAX: u64 = 3_600;
/// The largest number of requests in flight that a limit takes.
pub const CONCURRENCY_MAX: u64 = 1_000_000;

/// The plain limits of a node, as forms show them: per minute, per calendar month, enforced, for all models and
/// priorities. `None` is no limit, which is not the same as zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLimits {
    /// Money per calendar month.
    pub monthly_cost: Option<Nanos>,
    /// Input and output tokens per calendar month.
    pub monthly_tokens: Option<u64>,
    /// Requests per minute.
    pub requests_per_minute: Option<u64>,
    /// Input tokens per minute.
    pub input_tokens_per_minute: Option<u64>,
    /// Output tokens per minute.
    pub output_tokens_per_minute: Option<u64>,
    /// Input and output tokens per minute.
    pub total_tokens_per_minute: Option<u64>,
    /// Requests in flight.
    pub concurrency: Option<u64>,
    /// Input tokens of one request.
    pub request_input_tokens: Option<u64>,
    /// Output tokens of one request.
    pub request_output_tokens: Option<u64>,
    /// Duration of one request, seconds.
    pub request_seconds: Option<u64>,
}

/// The same as a form's texts. A blank is no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeLimitsText {
    /// Money per calendar month.
    pub monthly_cost: String,
    /// Input and output tokens per calendar month.
    pub monthly_tokens: String,
    /// Requests per minute.
    pub requests_per_minute: String,
    /// Input tokens per minute.
    pub input_tokens_per_minute: String,
    /// Output tokens per minute.
    pub output_tokens_per_minute: String,
    /// Input and output tokens per minute.
    pub total_tokens_per_minute: String,
    /// Requests in flight.
    pub concurrency: String,
    /// Input tokens of one request.
    pub request_input_tokens: String,
    /// Output tokens of one request.
    pub request_output_tokens: String,
    /// Duration of one request, seconds.
    pub request_seconds: String,
}

impl NodeLimitsText {
    /// Reads the texts; what is wrong is noted under the fields' names.
    pub fn parse(&self, fields: &mut Fields) -> NodeLimits {
        NodeLimits {
            monthly_cost: fields.amount("monthly_cost", &self.monthly_cost),
            monthly_tokens: fields.count("monthly_tokens", &self.monthly_tokens),
            requests_per_minute: fields.count("requests_per_minute", &self.requests_per_minute),
            input_tokens_per_minute: fields.count("input_tokens_per_minute", &self.input_tokens_per_minute),
            output_tokens_per_minute: fields.count("output_tokens_per_minute", &self.output_tokens_per_minute),
            total_tokens_per_minute: fields.count("total_tokens_per_minute", &self.total_tokens_per_minute),
            concurrency: fields.count("concurrency", &self.concurrency),
            request_input_tokens: fields.count("request_input_tokens", &self.request_input_tokens),
            request_output_tokens: fields.count("request_output_tokens", &self.request_output_tokens),
            request_seconds: fields.count("request_seconds", &self.request_seconds),
        }
    }
}

impl From<&NodeLimits> for NodeLimitsText {
    fn from(limits: &NodeLimits) -> Self {
        let count = |value: Option<u64>| value.map(|value| value.to_string()).unwrap_or_default();
        Self {
            monthly_cost: limits.monthly_cost.map(|cost| cost.to_string()).unwrap_or_default(),
            monthly_tokens: count(limits.monthly_tokens),
            requests_per_minute: count(limits.requests_per_minute),
            input_tokens_per_minute: count(limits.input_tokens_per_minute),
            output_tokens_per_minute: count(limits.output_tokens_per_minute),
            total_tokens_per_minute: count(limits.total_tokens_per_minute),
            concurrency: count(limits.concurrency),
            request_input_tokens: count(limits.request_input_tokens),
            request_output_tokens: count(limits.request_output_tokens),
            request_seconds: count(limits.request_seconds),
        }
    }
}

impl NodeLimits {
    /// The plain ones among a node's limits.
    pub fn of(limits: &[Limit]) -> Self {
        let value = |dimension| {
            limits
                .iter()
                .find(|limit| is_plain(limit, dimension))
                .map(|limit| limit.value)
        };
        Self {
            monthly_cost: value(Dimension::BudgetCost).map(|nanos| Nanos(i64::try_from(nanos).unwrap_or(i64::MAX))),
            monthly_tokens: value(Dimension::BudgetTokens),
            requests_per_minute: value(Dimension::Requests),
            input_tokens_per_minute: value(Dimension::InputTokens),
            output_tokens_per_minute: value(Dimension::OutputTokens),
            total_tokens_per_minute: value(Dimension::TotalTokens),
            concurrency: value(Dimension::Concurrency),
            request_input_tokens: value(Dimension::RequestInputTokens),
            request_output_tokens: value(Dimension::RequestOutputTokens),
            request_seconds: value(Dimension::RequestSeconds),
        }
    }

    /// Notes which values are out of range.
    pub fn validate(&self, fields: &mut Fields) {
        for (dimension, value) in self.values() {
            if let Some(value) = value {
                check_value(fields, field_of(dimension), dimension, value);
            }
        }
    }

    fn values(&self) -> [(Dimension, Option<u64>); 10] {
        let cost = self.monthly_cost.map(|cost| u64::try_from(cost.0).unwrap_or(0));
        [
            (Dimension::BudgetCost, cost),
            (Dimension::BudgetTokens, self.monthly_tokens),
            (Dimension::Requests, self.requests_per_minute),
            (Dimension::InputTokens, self.input_tokens_per_minute),
            (Dimension::OutputTokens, self.output_tokens_per_minute),
            (Dimension::TotalTokens, self.total_tokens_per_minute),
            (Dimension::Concurrency, self.concurrency),
            (Dimension::RequestInputTokens, self.request_input_tokens),
            (Dimension::RequestOutputTokens, self.request_output_tokens),
            (Dimension::RequestSeconds, self.request_seconds),
        ]
    }
}

/// One limit in full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitDraft {
    /// Fields `dimension`, `value`, `window_seconds`, `burst`, `period`, `model`, `priority`, `gates`.
    pub dimension: Dimension,
    /// Requests, tokens, seconds, or nano-units of money. Zero admits nothing.
    pub value: u64,
    /// Rates: the window, 1 to [`WINDOW_SECONDS_MAX`].
    pub window_seconds: u32,
    /// Token rates: the bucket's size; `None` is the default.
    pub burst: Option<u64>,
    /// Budgets: their period.
    pub period: Period,
    /// Only this model's requests.
    pub model: Option<Arc<str>>,
    /// Only requests of this priority.
    pub priority: Option<Priority>,
    /// Refuse, or rehearse.
    pub mode: Mode,
    /// Priority gates.
    pub gates: Option<Gates>,
}

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
        if !self.sees(actor, target).await? {
            return Err(ControlError::NotFound { what: "node" });
        }
        Ok(self.store.limits_of(target).await?.into())
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
        actor.require_operator()?;
        check_draft(draft)?;
        let mut transaction = self.store.begin().await?;
        require_node(&mut transaction, target, now).await?;
        if let Some(model) = &draft.model
            && !models::missing(&mut transaction, &[model.to_string()])
                .await?
                .is_empty()
        {
            return Err(ControlError::field("model", "there is no such model"));
        }
        let rows = limits::lock(&mut transaction, target).await?;
        require_version(&rows, version)?;
        let mut limit = self.limit(target, draft, now);
        let previous = rows.limits.iter().find(|old| old.slot() == limit.slot());
        if let Some(previous) = previous {
            limit.id = previous.id;
            limits::update(&mut transaction, &limit).await?;
        } else {
            require_room(&rows)?;
            limits::insert(&mut transaction, &limit, now).await?;
        }
        self.note(
            &mut transaction,
            actor,
            now,
            changed("limit.set", target, previous, Some(&limit)),
        )
        .await?;
        commit(transaction).await?;
        Ok(rows.version + 1)
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
        for (dimension, value) in wanted.values() {
            let previous = rows.limits.iter().find(|limit| is_plain(limit, dimension));
            match (previous, value) {
                (None, None) => continue,
                (Some(previous), Some(value)) if previous.value == value => continue,
                (Some(previous), Some(value)) => {
                    // Burst, mode and gates of a limit that somebody refined stay.
                    let limit = Limit {
                        value,
                        ..previous.clone()
                    };
                    limits::update(transaction, &limit).await?;
                }
                (None, Some(value)) => {
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
            window_seconds: draft.window_seconds,
            burst: draft.burst,
            period: draft.period,
            model: draft.model.clone(),
            priority: draft.priority,
            mode: draft.mode,
            gates: draft.gates,
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

    async fn sees_key(&self, reach: Reach, id: KeyId) -> Result<bool, ControlError> {
        let key = self.store.find_key(id).await?;
        Ok(key.is_some_and(|key| match reach {
            Reach::Everything => true,
            Reach::Tenant(own) => key.tenant_id == own,
            Reach::Own(own, person) => key.tenant_id == own && key.owner_id == Some(person),
        }))
    }
}

/// The form's field of a dimension.
pub fn field_of(dimension: Dimension) -> &'static str {
    match dimension {
        Dimension::BudgetCost => "monthly_cost",
        Dimension::BudgetTokens => "monthly_tokens",
        Dimension::Requests => "requests_per_minute",
        Dimension::InputTokens => "input_tokens_per_minute",
        Dimension::OutputTokens => "output_tokens_per_minute",
        Dimension::TotalTokens => "total_tokens_per_minute",
        Dimension::Concurrency => "concurrency",
        Dimension::RequestInputTokens => "request_input_tokens",
        Dimension::RequestOutputTokens => "request_output_tokens",
        Dimension::RequestSeconds => "request_seconds",
    }
}

fn plain(dimension: Dimension, value: u64) -> LimitDraft {
    LimitDraft {
        dimension,
        value,
        window_seconds: DEFAULT_WINDOW_SECONDS,
        burst: None,
        period: Period::Month,
        model: None,
        priority: None,
        mode: Mode::Enforce,
        gates: None,
    }
}

/// Whether the limit sits in the slot that forms show.
pub fn is_plain(limit: &Limit, dimension: Dimension) -> bool {
    limit.dimension == dimension
        && limit.model.is_none()
        && limit.priority.is_none()
        && (!dimension.is_rate() || limit.window_seconds == DEFAULT_WINDOW_SECONDS)
        && (!dimension.is_budget() || limit.period == Period::Month)
}

fn check_value(fields: &mut Fields, field: &'static str, dimension: Dimension, value: u64) {
    let max = match dimension {
        Dimension::RequestSeconds => REQUEST_SECONDS_MAX,
        Dimension::Concurrency => CONCURRENCY_MAX,
        Dimension::BudgetCost => i64::MAX.unsigned_abs(),
        _ => COUNT_MAX,
    };
    if dimension == Dimension::RequestSeconds && value == 0 {
        fields.refuse(field, "at least 1 second");
    } else if value > max {
        fields.refuse(field, format!("at most {max}"));
    }
}

fn check_draft(draft: &LimitDraft) -> Result<(), ControlError> {
    let mut fields = Fields::default();
    check_value(&mut fields, "value", draft.dimension, draft.value);
    fields.require(
        (1..=WINDOW_SECONDS_MAX).contains(&draft.window_seconds),
        "window_seconds",
        "between 1 second and one day (86,400 seconds)",
    );
    if let Some(burst) = draft.burst {
        fields.require(
            draft.dimension.is_rate() && draft.dimension != Dimension::Requests,
            "burst",
            "only token rates have a burst",
        );
        fields.require(
            (1..=COUNT_MAX).contains(&burst),
            "burst",
            "at least 1; leave it empty for five seconds' worth",
        );
    }
    if let Some(gates) = draft.gates {
        fields.require(
            1 <= gates.lower_percent && gates.lower_percent <= gates.upper_percent && gates.upper_percent <= 100,
            "gates",
            "the lower gate is at least 1 %, the upper not below it and at most 100 %",
        );
        fields.require(
            !draft.dimension.is_request_cap(),
            "gates",
            "a cap on single requests has no gates",
        );
    }
    fields.check()
}

/// That the node exists. An end user needs no record, so any name of one will do.
async fn require_node(transaction: &mut Transaction, target: &Target, now: DateTime<Utc>) -> Result<(), ControlError> {
    let (exists, what) = match target {
        Target::Node(Scope::Global) => (true, "node"),
        Target::Node(Scope::ModelGroup(group)) => (models::group_exists(transaction, group).await?, "model group"),
        Target::Node(Scope::Model(name)) => (models::lock(transaction, name, now).await?.is_some(), "model"),
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

fn require_room(rows: &NodeLimitRows) -> Result<(), ControlError> {
    if (rows.limits.len() as i64) < LIMITS_OF_NODE_MAX {
        return Ok(());
    }
    Err(ControlError::field(
        "dimension",
        format!("a node has at most {LIMITS_OF_NODE_MAX} limits"),
    ))
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
