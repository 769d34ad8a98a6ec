//! What each gateway says about itself every two seconds, for the console.

use chrono::{DateTime, Utc};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

use crate::alerts::AlertKind;
use crate::ids::UpstreamId;
use crate::limits::{Dimension, Scope};
use crate::refusals::RefusalCode;

/// How often a gateway writes its status, in milliseconds.
pub const STATUS_INTERVAL_MS: u64 = 2_000;
/// A gateway that has been silent for so long is shown as gone, in milliseconds.
pub const STATUS_STALE_MS: i64 = 10_000;

/// A gateway's live status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct InstanceStatus {
    /// Version of the program.
    pub version: String,
    /// When it started.
    pub started_at: Option<DateTime<Utc>>,
    /// Where counters live: `memory` or `redis`; `degraded` while Redis does not answer.
    pub counters: String,
    /// What is degraded; empty when all is well.
    #[serde(deserialize_with = "understood")]
    pub degraded: Vec<Degraded>,
    /// The policy version in force.
    pub policy_version: i64,
    /// Milliseconds since the policy was last known to be current.
    pub policy_age_ms: u64,
    /// Requests in flight.
    pub in_flight: u64,
    /// Journal records not yet in Postgres.
    pub journal_depth: u64,
    /// Age of the oldest of them in milliseconds.
    pub journal_lag_ms: u64,
    /// Journal on disk, bytes.
    pub journal_bytes: u64,
    /// The size at which new requests are refused, bytes; 0 where the gateway does not tell.
    pub journal_bytes_max: u64,
    /// Records shipped a second lately.
    pub journal_shipped_per_second: u64,
    /// Records of this gateway that are in quarantine, and gaps, that nobody has dealt with.
    pub journal_quarantined: u64,
    /// Holds without an ending.
    pub open_holds: u64,
    /// Every entry of this gateway that was admitted or refused earlier is in Postgres. The moment of writing when
    /// nothing is pending.
    pub complete_until: Option<DateTime<Utc>>,
    /// Who waits for admission here.
    pub queue: QueueStatus,
    /// Upstreams that are not simply in use: their breakers are open or half-open, or they cool down. Closed ones are left
    /// out.
    #[serde(deserialize_with = "understood")]
    pub breakers: Vec<BreakerStatus>,
    /// Jobs that run here.
    pub jobs_running: u64,
    /// How the gateway was set up; absent where it does not tell.
    #[serde(deserialize_with = "understood_setup")]
    pub setup: Option<Setup>,
    /// By how much its clock is ahead of Postgres's, in milliseconds; below zero behind. Absent while that is not known.
    pub clock_ahead_ms: Option<i64>,
    /// What Redis does when its memory is full, in Redis's word; absent without Redis, and where it does not tell.
    pub redis_eviction: Option<String>,
}

/// How a gateway was set up, as far as that decides whether it is fit for production.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// Whether it runs on the private Postgres under its data directory.
    pub has_private_postgres: bool,
    /// What its data directory lies on.
    pub data_dir: DataDirKind,
    /// Whether it was given the secret key, and did not make one.
    pub has_given_secret_key: bool,
    /// How people reach its console, as it was told: scheme and host; absent where it was not told.
    pub public_origin: Option<String>,
    /// How long a request may take altogether, in milliseconds.
    pub request_timeout_ms: u64,
}

/// What a data directory lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataDirKind {
    /// A disk or volume that stays.
    Disk,
    /// Memory (`tmpfs`): gone when the machine or container stops.
    Memory,
    /// A container's own layer (`overlay`): gone with the container.
    Overlay,
    /// A directory for temporary files, which are deleted by themselves.
    Temporary,
    /// Not to be found out, or a word of a later version.
    #[serde(other)]
    Unknown,
}

impl InstanceStatus {
    /// How long the rest of the journal takes at the rate of the last seconds, in seconds; `None` while nothing is shipped
    /// or nothing waits.
    pub fn journal_drains_in_seconds(&self) -> Option<u64> {
        let is_known = self.journal_depth > 0 && self.journal_shipped_per_second > 0;
        is_known.then(|| self.journal_depth.div_ceil(self.journal_shipped_per_second))
    }
}

/// Something that is worse than it should be. It becomes an alert of this kind when it lasts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Degraded {
    /// What.
    pub kind: AlertKind,
    /// What it means, in words.
    pub text: String,
}

/// The queue of one gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueStatus {
    /// Requests that wait.
    pub depth: u64,
    /// How many may; 0 where nobody waits.
    pub places: u64,
    /// What those that wait are expected to use, in tokens.
    pub waiting_tokens: u64,
    /// How much that may be.
    pub waiting_tokens_max: u64,
    /// How long the one that came first has waited, in milliseconds.
    pub longest_ms: u64,
    /// How long one may wait at most, in milliseconds.
    pub timeout_ms: u64,
    /// What they wait for, the most frequent first; at most [`QUEUE_REASONS_MAX`].
    #[serde(deserialize_with = "understood")]
    pub reasons: Vec<QueueReason>,
}

/// The elements that this version understands: a gateway of another version must not lose its whole status for one new word.
fn understood<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let elements = Vec::<serde_json::Value>::deserialize(deserializer)?;
    Ok(elements
        .into_iter()
        .filter_map(|element| serde_json::from_value(element).ok())
        .collect())
}

/// The same of the setup.
fn understood_setup<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Setup>, D::Error> {
    let setup = Option::<serde_json::Value>::deserialize(deserializer)?;
    Ok(setup.and_then(|setup| serde_json::from_value(setup).ok()))
}

/// Reasons that a status lists, at most.
pub const QUEUE_REASONS_MAX: usize = 10;

/// What requests wait for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueReason {
    /// The scope without room.
    pub scope: Scope,
    /// In what.
    pub dimension: Dimension,
    /// Why they were not admitted.
    pub code: RefusalCode,
    /// How many.
    pub count: u64,
}

/// One upstream and model that is not simply in use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BreakerStatus {
    /// Which upstream.
    pub upstream_id: UpstreamId,
    /// The model's name there; absent where all of its models are meant.
    pub upstream_model: Option<String>,
    /// What its breaker does.
    pub state: BreakerState,
    /// Since when.
    pub since: DateTime<Utc>,
    /// When it is tried again; absent while it is.
    pub until: Option<DateTime<Utc>>,
    /// What led to it, in words for operators.
    pub reason: String,
}

/// What a breaker does with requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakerState {
    /// Lets all of them through.
    Closed,
    /// Lets none through, until the provider's own limit has room again.
    Cooling,
    /// Lets none through.
    Open,
    /// Lets a few through, to see whether it may close.
    HalfOpen,
}

impl BreakerState {
    /// The word in JSON, metrics and pages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Cooling => "cooling",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

#[cfg(test)]
mod tests;
