//! What operators configure and gateways enforce: the rows of the policy snapshot.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use serde::{Deserialize, Serialize};

use crate::ids::{KeyId, PersonId, PlanId, TenantId, UpstreamId};
use crate::key_rules::KeyRules;
use crate::key_text::SecretHash;
use crate::limits::Limit;
use crate::own_limits::OwnLimits;
use crate::prices::{Price, Unpriced};
use crate::priority::Priority;
use crate::text;
use crate::text::Text;

/// Settings of the whole installation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Decides periods, reports, console and CSV.
    pub time_zone: Tz,
    /// ISO 4217 code of the one billing currency.
    pub currency: String,
    /// What happens to a request whose model has no valid price.
    pub unpriced: Unpriced,
    /// Rehearses all limits at this share of their value, in percent; off when absent.
    pub rehearsal_percent: Option<u8>,
}

/// A tenant as the gateway sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    /// Which one.
    pub id: TenantId,
    /// Its name, unique.
    pub name: String,
    /// Its plan, whose limits and priority apply where it has none of its own.
    pub plan_id: Option<PlanId>,
    /// The highest priority its keys may run at; the plan's where absent, and `high` without either.
    pub priority_ceiling: Option<Priority>,
    /// Refused with `tenant_suspended` while set.
    pub suspended_at: Option<DateTime<Utc>>,
    /// Whether the gateway writes the estimated output cap into requests that state none, so that a budget's hold is a
    /// promise.
    pub has_strict_budgets: bool,
    /// What the keys of its people may be.
    #[serde(default)]
    pub key_rules: KeyRules,
    /// Gone for good; kept for reports.
    pub removed_at: Option<DateTime<Utc>>,
}

/// A plan as the gateway sees it; its limits are rows of their own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Which one.
    pub id: PlanId,
    /// Its name, unique.
    pub name: String,
    /// The ceiling of tenants that state none.
    pub priority_ceiling: Priority,
    /// Gone for good.
    pub removed_at: Option<DateTime<Utc>>,
}

/// One secret of a key. Two are valid during the overlap of a rotation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeySecret {
    /// Stored instead of the secret.
    pub hash: SecretHash,
    /// End of the overlap, exclusive; open when absent.
    pub valid_until: Option<DateTime<Utc>>,
}

/// An API key as the gateway sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// Which one; never changes.
    pub id: KeyId,
    /// The part of its text that may be shown.
    pub public_id: String,
    /// Whose it is.
    pub tenant_id: TenantId,
    /// The person who owns it; a service account's key has none.
    pub owner_id: Option<PersonId>,
    /// What people call it.
    pub name: String,
    /// What its requests run at, under the tenant's ceiling.
    pub priority: Priority,
    /// Models it may use; all when absent.
    pub allowed_models: Option<Vec<String>>,
    /// Whether requests may name an end user, if it is an application's: see [`Key::names_users`].
    pub may_name_users: bool,
    /// Whether a request that could be admitted later is answered with a job rather than refused.
    #[serde(default)]
    pub degrades: bool,
    /// Refused from then on with `key_expired`.
    pub expires_at: Option<DateTime<Utc>>,
    /// Refused since then with `key_revoked`.
    pub revoked_at: Option<DateTime<Utc>>,
    /// What its owner lets it use at most.
    #[serde(default)]
    pub own_limits: OwnLimits,
    /// Its secrets, newest first; at most two.
    pub secrets: Vec<KeySecret>,
}

impl Key {
    /// Whether its requests may name an end user, who then stands in its owner's place. Never a person's key: whoever owns
    /// it would escape the limits of its owner by naming somebody else. To count in both scopes instead would book in the
    /// owner's budget what the ledger's row says of another user, and no sum could be told again from the entries.
    pub fn names_users(&self) -> bool {
        self.may_name_users && self.owner_id.is_none()
    }

    /// Whether any of its secrets is valid at `at`.
    pub fn has_valid_secret(&self, at: DateTime<Utc>) -> bool {
        self.secrets
            .iter()
            .any(|secret| secret.valid_until.is_none_or(|until| at < until))
    }

    /// Whether it may use `model`.
    pub fn allows_model(&self, model: &str) -> bool {
        self.allowed_models
            .as_ref()
            .is_none_or(|allowed| allowed.iter().any(|name| name == model))
    }
}

/// A wire dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// OpenAI and what imitates it.
    Openai,
    /// Anthropic messages.
    Anthropic,
}

impl Dialect {
    /// The word in SQL, JSON and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Openai => "openai",
            Self::Anthropic => "anthropic",
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is no dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", Text::from(self))]
pub struct UnknownDialect;

impl From<&UnknownDialect> for Text {
    fn from(_: &UnknownDialect) -> Self {
        text!("a dialect is openai or anthropic")
    }
}

impl FromStr for Dialect {
    type Err = UnknownDialect;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Openai, Self::Anthropic]
            .into_iter()
            .find(|dialect| dialect.as_str() == text)
            .ok_or(UnknownDialect)
    }
}

/// How a model's tokens are counted before a request runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    /// Exactly, with `o200k_base`.
    O200kBase,
    /// Exactly, with `cl100k_base`.
    Cl100kBase,
    /// By bytes times a learned ratio.
    #[default]
    Ratio,
}

impl Encoding {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::O200kBase, Self::Cl100kBase, Self::Ratio];

    /// The word in SQL and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::O200kBase => "o200k_base",
            Self::Cl100kBase => "cl100k_base",
            Self::Ratio => "ratio",
        }
    }
}

/// The text is no encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", Text::from(self))]
pub struct UnknownEncoding;

impl From<&UnknownEncoding> for Text {
    fn from(_: &UnknownEncoding) -> Self {
        text!("an encoding is one of o200k_base, cl100k_base, ratio")
    }
}

impl FromStr for Encoding {
    type Err = UnknownEncoding;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|encoding| encoding.as_str() == text)
            .ok_or(UnknownEncoding)
    }
}

/// One way to serve a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// By which upstream.
    pub upstream_id: UpstreamId,
    /// The model's name there.
    pub upstream_model: String,
    /// Lower ones are tried first.
    pub position: i32,
    /// Share among routes of one position, at least 1.
    pub weight: i32,
}

/// A model as the gateway sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Model {
    /// The name a caller asks for.
    pub name: String,
    /// The group whose limits it shares.
    pub group: Option<Arc<str>>,
    /// Input and output together, in tokens.
    pub context_tokens: u64,
    /// The most output it can give.
    pub output_cap_tokens: u64,
    /// The output held for a request that states no cap; at most `output_cap_tokens`.
    pub output_default_tokens: u64,
    /// How its tokens are counted.
    pub encoding: Encoding,
    /// Hidden and refused while set.
    pub disabled_at: Option<DateTime<Utc>>,
    /// Its routes in the order of position.
    pub routes: Vec<Route>,
}

/// An upstream as the gateway sees it.
#[derive(Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct Upstream {
    /// Which one.
    pub id: UpstreamId,
    /// Its name, unique.
    pub name: String,
    /// What it speaks.
    pub dialect: Dialect,
    /// Up to and including the version, without a slash at the end: `https://provider.example/v1`.
    pub base_url: String,
    /// The credential, sealed under the installation's secret key; absent when it wants none.
    pub credential_sealed: Option<Vec<u8>>,
    /// Not used while set.
    pub disabled_at: Option<DateTime<Utc>>,
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream")
            .field("id", &self.id)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// A limit, or the news that it is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitRow {
    /// The limit as last configured.
    pub limit: Limit,
    /// Set when it was removed.
    pub removed_at: Option<DateTime<Utc>>,
}

/// A price, or the news that it is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriceRow {
    /// The price as last configured.
    pub price: Price,
    /// Set when it was removed.
    pub removed_at: Option<DateTime<Utc>>,
}

/// Rows newer than a version, read in one snapshot of the database. From version 0 it is the whole policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyChanges {
    /// The version these rows lead to.
    pub version: i64,
    /// The version that came with the last adjustment of the ledger: what budgets have spent is another since then.
    #[serde(default)]
    pub adjusted_version: i64,
    /// Settings, always whole.
    pub settings: Settings,
    /// Tenants.
    pub tenants: Vec<Tenant>,
    /// Plans.
    pub plans: Vec<Plan>,
    /// Keys with all their valid secrets.
    pub keys: Vec<Key>,
    /// Models with all their routes.
    pub models: Vec<Model>,
    /// Prices.
    pub prices: Vec<PriceRow>,
    /// Upstreams.
    pub upstreams: Vec<Upstream>,
    /// Limits.
    pub limits: Vec<LimitRow>,
}
