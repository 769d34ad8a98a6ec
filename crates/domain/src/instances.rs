//! What each gateway says about itself every two seconds, for the console.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

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
    /// What is degraded, in words; empty when all is well.
    pub degraded: Vec<String>,
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
    /// Holds without an ending.
    pub open_holds: u64,
    /// Every entry of this gateway that was admitted or refused earlier is in Postgres. The moment of writing when
    /// nothing is pending.
    pub complete_until: Option<DateTime<Utc>>,
}
