//! Asynchronous jobs: requests that could not be admitted when they came, and whose callers come back for the answer.
//!
//! A job holds nothing while it waits. Each of its runs is a request like any other, with a ledger row of its own.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::text::Text;

/// The longest body that becomes a job, in bytes.
pub const JOB_REQUEST_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The longest answer that is kept, in bytes.
pub const JOB_RESPONSE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Jobs of one tenant that wait at most.
pub const JOBS_WAITING_MAX: i64 = 1_000;
/// What the waiting jobs of one tenant ask for together at most, in bytes, sealed.
pub const JOBS_WAITING_BYTES_MAX: i64 = 256 * 1024 * 1024;
/// Jobs of one tenant that are accepted within an hour at most, whatever became of them.
pub const JOBS_PER_HOUR_MAX: i64 = 10_000;
/// How long a job may wait, in hours; then it is expired.
pub const JOB_WAIT_HOURS: i64 = 24;
/// How long the answer is kept after the end, in hours.
pub const JOB_RESPONSE_HOURS: i64 = 24;
/// How long the job itself can be seen after its end, in days.
pub const JOB_KEPT_DAYS: i64 = 7;
/// How often a job is run at most. Each run is a request like any other, which may be tried at several upstreams.
pub const JOB_ATTEMPTS_MAX: i32 = 5;
/// The shortest wait before a job is tried again, in milliseconds.
const RETRY_MS_MIN: u64 = 1_000;
/// The longest wait before a job is tried again, in milliseconds, unless the limit in its way says more.
pub const JOB_RETRY_MS_MAX: u64 = 5 * 60_000;

/// Where a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobStatus {
    /// For room, or for its next attempt.
    Waiting,
    /// A gateway runs it.
    Running,
    /// The provider has answered.
    Completed,
    /// It was refused for good, or the provider failed too often.
    Failed,
    /// Somebody called it off.
    Cancelled,
    /// It waited as long as it may.
    Expired,
}

impl JobStatus {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Waiting,
        Self::Running,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
        Self::Expired,
    ];

    /// The word in SQL, JSON, metrics and pages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
        }
    }

    /// Whether nothing will happen to it any more.
    pub fn is_over(self) -> bool {
        !matches!(self, Self::Waiting | Self::Running)
    }
}

impl fmt::Display for JobStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is none of the six words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub struct UnknownJobStatus;

impl UnknownJobStatus {
    /// For people, in their language.
    pub fn text(self) -> Text {
        crate::text!("a job is one of waiting, running, completed, failed, cancelled, expired")
    }
}

impl FromStr for JobStatus {
    type Err = UnknownJobStatus;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|status| status.as_str() == text)
            .ok_or(UnknownJobStatus)
    }
}

/// Why a job was not run, or not run to its end, when it was last tried. Shown to its caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobError {
    /// The word that programs act on: a refusal's code, or the provider's.
    pub code: String,
    /// For people.
    pub message: String,
}

impl JobError {
    /// Without the character that Postgres keeps in no text; a provider's words may hold it.
    pub fn new(code: &str, message: &str) -> Self {
        Self {
            code: code.replace('\0', ""),
            message: message.replace('\0', ""),
        }
    }
}

/// How long a job waits for its next try, in milliseconds: at least what it was told, and doubled with each of `tries` that
/// brought nothing, from a second up to [`JOB_RETRY_MS_MAX`]. `random` in 0..=1 adds up to half as much again, so that jobs
/// that were refused together do not come back together.
pub fn job_retry_ms(tries: u32, told_ms: Option<u64>, random: f64) -> u64 {
    let doubled = RETRY_MS_MIN
        .saturating_mul(1_u64.checked_shl(tries).unwrap_or(u64::MAX))
        .min(JOB_RETRY_MS_MAX);
    let wait_ms = doubled.max(told_ms.unwrap_or(0));
    wait_ms.saturating_add((doubled as f64 / 2.0 * random.clamp(0.0, 1.0)) as u64)
}

#[cfg(test)]
mod tests;
