//! The quota tree: scopes, and the limits on them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::budget_events::Thresholds;
use crate::ids::{KeyId, LimitId, PlanId, TenantId, UpstreamId};
use crate::periods::Period;
use crate::priority::Priority;
use crate::text;
use crate::text::Text;

/// Length of a rate's window unless the limit says otherwise, in seconds.
pub const DEFAULT_WINDOW_SECONDS: u32 = 60;
/// Default burst of a token bucket, in seconds of refill.
pub const DEFAULT_BURST_SECONDS: u32 = 5;

/// A node of the quota tree. Its text form is used in the ledger, headers and pages: `tenant:<id>`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// The whole installation.
    Global,
    /// Models that share limits.
    ModelGroup(Arc<str>),
    /// One model.
    Model(Arc<str>),
    /// One tenant.
    Tenant(TenantId),
    /// Whom a request is for, within a tenant.
    User(TenantId, Arc<str>),
    /// One API key.
    Key(KeyId),
    /// A provider account.
    Upstream(UpstreamId),
}

impl Scope {
    /// The kind's word in SQL.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Global => "global",
            Self::ModelGroup(_) => "models",
            Self::Model(_) => "model",
            Self::Tenant(_) => "tenant",
            Self::User(..) => "user",
            Self::Key(_) => "key",
            Self::Upstream(_) => "upstream",
        }
    }

    /// What identifies the node within its kind; empty for `global`.
    pub fn identifier(&self) -> String {
        match self {
            Self::Global => String::new(),
            Self::ModelGroup(name) | Self::Model(name) => name.to_string(),
            Self::Tenant(id) => id.to_string(),
            Self::User(tenant, user) => format!("{tenant}/{user}"),
            Self::Key(id) => id.to_string(),
            Self::Upstream(id) => id.to_string(),
        }
    }

    /// Whether only one tenant's traffic counts here: its refusals say "you", those of shared scopes "the service".
    pub fn is_own(&self) -> bool {
        matches!(self, Self::Tenant(_) | Self::User(..) | Self::Key(_))
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Global => f.write_str("global"),
            _ => write!(f, "{}:{}", self.kind(), self.identifier()),
        }
    }
}

impl Serialize for Scope {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Scope {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// The text names no scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub struct UnknownScope;

impl UnknownScope {
    /// What to write instead.
    pub fn text(self) -> Text {
        text!("a scope is global or one of models:, model:, tenant:, user:, key:, upstream: with its identifier")
    }
}

impl FromStr for Scope {
    type Err = UnknownScope;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "global" {
            return Ok(Self::Global);
        }
        let (kind, identifier) = text.split_once(':').ok_or(UnknownScope)?;
        match kind {
            "models" => Ok(Self::ModelGroup(identifier.into())),
            "model" => Ok(Self::Model(identifier.into())),
            "tenant" => identifier.parse().map(Self::Tenant).map_err(|_| UnknownScope),
            "user" => {
                let (tenant, user) = identifier.split_once('/').ok_or(UnknownScope)?;
                Ok(Self::User(tenant.parse().map_err(|_| UnknownScope)?, user.into()))
            }
            "key" => identifier.parse().map(Self::Key).map_err(|_| UnknownScope),
            "upstream" => identifier.parse().map(Self::Upstream).map_err(|_| UnknownScope),
            _ => Err(UnknownScope),
        }
    }
}

/// Every node of a kind below a tenant or plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Every tenant (of a plan).
    Tenant,
    /// Every user.
    User,
    /// Every end user that an application's key names; where absent, `User` applies to them too.
    EndUser,
    /// Every key.
    Key,
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Tenant, Self::User, Self::EndUser, Self::Key];

    /// The word in SQL and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::User => "user",
            Self::EndUser => "end_user",
            Self::Key => "key",
        }
    }
}

impl FromStr for Class {
    type Err = UnknownScope;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|class| class.as_str() == text)
            .ok_or(UnknownScope)
    }
}

/// What a limit sits on: one node, or every node of a class.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// This node.
    Node(Scope),
    /// Every node of the class within the tenant; a node's own limit replaces it.
    OfTenant(TenantId, Class),
    /// Every node of the class within every tenant on the plan; the tenant's own settings replace it.
    OfPlan(PlanId, Class),
}

/// What is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dimension {
    /// Requests per window.
    Requests,
    /// Input tokens per window.
    InputTokens,
    /// Output tokens per window.
    OutputTokens,
    /// Input and output tokens per window.
    TotalTokens,
    /// Requests in flight.
    Concurrency,
    /// Tokens per period.
    BudgetTokens,
    /// Nano-units of money per period.
    BudgetCost,
    /// Input tokens of one request.
    RequestInputTokens,
    /// Output tokens of one request.
    RequestOutputTokens,
    /// Duration of one request in seconds; the gateway's total time-out.
    RequestSeconds,
}

impl Dimension {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Requests,
        Self::InputTokens,
        Self::OutputTokens,
        Self::TotalTokens,
        Self::Concurrency,
        Self::BudgetTokens,
        Self::BudgetCost,
        Self::RequestInputTokens,
        Self::RequestOutputTokens,
        Self::RequestSeconds,
    ];

    /// The word in SQL, JSON, headers and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::InputTokens => "input_tokens",
            Self::OutputTokens => "output_tokens",
            Self::TotalTokens => "total_tokens",
            Self::Concurrency => "concurrency",
            Self::BudgetTokens => "budget_tokens",
            Self::BudgetCost => "budget_cost",
            Self::RequestInputTokens => "request_input_tokens",
            Self::RequestOutputTokens => "request_output_tokens",
            Self::RequestSeconds => "request_seconds",
        }
    }

    /// Requests or tokens per window.
    pub fn is_rate(self) -> bool {
        matches!(
            self,
            Self::Requests | Self::InputTokens | Self::OutputTokens | Self::TotalTokens
        )
    }

    /// Tokens or money per period.
    pub fn is_budget(self) -> bool {
        matches!(self, Self::BudgetTokens | Self::BudgetCost)
    }

    /// A cap on each single request.
    pub fn is_request_cap(self) -> bool {
        matches!(
            self,
            Self::RequestInputTokens | Self::RequestOutputTokens | Self::RequestSeconds
        )
    }
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text names no dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub struct UnknownDimension;

impl UnknownDimension {
    /// What is wrong with it.
    pub fn text(self) -> Text {
        text!("this is not a dimension of a limit")
    }
}

impl FromStr for Dimension {
    type Err = UnknownDimension;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|dimension| dimension.as_str() == text)
            .ok_or(UnknownDimension)
    }
}

/// Whether a limit refuses or only says that it would have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Refuses.
    #[default]
    Enforce,
    /// Evaluated on the same counters; the verdict is stored on the request's row.
    Rehearse,
}

impl Mode {
    /// The word in SQL and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Rehearse => "rehearse",
        }
    }
}

/// Utilisation thresholds of a shared limit, in percent of its value, `1 <= lower <= upper <= 100`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Gates {
    /// From here `low` waits or degrades.
    pub lower_percent: u8,
    /// From here only `high` and `critical` pass.
    pub upper_percent: u8,
    /// Whether those held back by the upper gate wait instead of being refused.
    pub upper_waits: bool,
}

/// Which gate holds a priority back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gate {
    /// The lower one: `low` waits or degrades.
    Lower,
    /// The upper one: only `high` and `critical` pass.
    Upper {
        /// Whether the others wait instead of being refused.
        waits: bool,
    },
}

/// A higher value of a limit for a while. It is over by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Increase {
    /// In place of the limit's value, in its unit.
    pub value: u64,
    /// The first instant at which it is over.
    pub until: DateTime<Utc>,
}

/// One configured limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// Which one; stored on refusals.
    pub id: LimitId,
    /// What it sits on.
    pub target: Target,
    /// What it limits.
    pub dimension: Dimension,
    /// Requests, tokens, seconds, or nano-units of money, by dimension. Zero admits nothing. What is in force at a moment
    /// says [`Limit::value_at`].
    pub value: u64,
    /// A higher value for a while; one that is over stays until another one is set.
    #[serde(default)]
    pub increase: Option<Increase>,
    /// Rates: the window in seconds, 1 to 86,400.
    pub window_seconds: u32,
    /// Token rates: the bucket's size; `None` is [`DEFAULT_BURST_SECONDS`] of refill.
    pub burst: Option<u64>,
    /// Budgets: how long until they start again.
    pub period: Period,
    /// Counts and limits only this model's requests.
    pub model: Option<Arc<str>>,
    /// Counts and limits only requests of this priority.
    pub priority: Option<Priority>,
    /// Refuse, or rehearse.
    pub mode: Mode,
    /// Priority gates, where the limit has any.
    pub gates: Option<Gates>,
    /// Budgets: what they tell of when so much is spent.
    #[serde(default)]
    pub thresholds: Thresholds,
}

/// What tells limits on one node apart: a narrower source (node, tenant, plan) replaces a wider one slot by slot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slot {
    /// Its dimension.
    pub dimension: Dimension,
    /// Rates: its window.
    pub window_seconds: Option<u32>,
    /// Budgets: its period.
    pub period: Option<Period>,
    /// Its model.
    pub model: Option<Arc<str>>,
    /// Its priority.
    pub priority: Option<Priority>,
}

impl Limit {
    /// The slot it fills on its node.
    pub fn slot(&self) -> Slot {
        Slot {
            dimension: self.dimension,
            window_seconds: self.dimension.is_rate().then_some(self.window_seconds),
            period: self.dimension.is_budget().then_some(self.period),
            model: self.model.clone(),
            priority: self.priority,
        }
    }

    /// The increase in force at `at`. One that is not above the value is none.
    pub fn increase_at(&self, at: DateTime<Utc>) -> Option<Increase> {
        self.increase
            .filter(|increase| at < increase.until && increase.value > self.value)
    }

    /// The increase that stays when the limit's own value becomes `value`: none when it is lowered, which is meant to hold at
    /// once, and none that is not above it, which would come back with the next lower value.
    pub fn increase_beside(&self, value: u64) -> Option<Increase> {
        self.increase
            .filter(|increase| value >= self.value && value < increase.value)
    }

    /// The value in force at `at`, never below the ordinary one.
    pub fn value_at(&self, at: DateTime<Utc>) -> u64 {
        self.increase_at(at).map_or(self.value, |increase| increase.value)
    }

    /// The limit as it is in force at `at`: with the value of that moment as its own.
    pub fn at(&self, at: DateTime<Utc>) -> Self {
        Self {
            value: self.value_at(at),
            increase: None,
            ..self.clone()
        }
    }

    /// Whether a request for `model` at `priority` counts here.
    pub fn applies_to(&self, model: &str, priority: Priority) -> bool {
        self.model.as_deref().is_none_or(|only| only == model) && self.priority.is_none_or(|only| only == priority)
    }

    /// Token rates: the bucket's size in tokens, at least 1 where the value is.
    pub fn burst_tokens(&self) -> u64 {
        let default =
            u128::from(self.value) * u128::from(DEFAULT_BURST_SECONDS) / u128::from(self.window_seconds.max(1));
        self.burst
            .unwrap_or_else(|| u64::try_from(default).unwrap_or(u64::MAX))
            .max(self.value.min(1))
    }
}

/// The limits in force on one node, given from the narrowest source to the widest; the first to fill a slot stays.
pub fn effective<'a>(sources: impl IntoIterator<Item = &'a [Limit]>) -> Vec<Limit> {
    let mut effective: Vec<Limit> = Vec::new();
    for source in sources {
        let narrower = effective.len();
        for limit in source {
            if !effective[..narrower].iter().any(|kept| kept.slot() == limit.slot()) {
                effective.push(limit.clone());
            }
        }
    }
    effective
}

#[cfg(test)]
mod tests;
