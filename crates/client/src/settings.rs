//! How a client behaves: time-outs, retries, and what it says about its requests.

use std::time::Duration;

use tokio::time::Instant;

use crate::labels::Labels;
use crate::retries::Retries;
use crate::retry_budget::RetryBudget;

/// The longest time-out, in milliseconds: a week. A longer one counts as this, so that every wait ends.
pub const TIMEOUT_MS_MAX: u64 = 7 * 24 * 60 * 60 * 1_000;

/// How a client behaves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// How long each step may take.
    pub timeouts: Timeouts,
    /// How refusals are waited for.
    pub retries: Retries,
    /// How much all retries together may add to the requests.
    pub retry_budget: RetryBudget,
    /// Asks the gateway to tell a stream that waits in its queue how deep that is; see
    /// [`StreamEvent::Queued`](crate::StreamEvent::Queued). Off by default.
    pub asks_for_queue_comments: bool,
    /// What is said about every request that does not say otherwise.
    pub labels: Labels,
}

/// How long each step may take, in milliseconds, at most [`TIMEOUT_MS_MAX`] each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Name look-up, TCP and TLS. Passing it is tried again, as nothing was sent. By default 5 s.
    pub connect_ms: u64,
    /// From a try's start to the head of its answer. Models think before they speak, and the gateway may queue the
    /// request first. By default 300 s.
    pub first_byte_ms: u64,
    /// Between two pieces of an answer, comments that keep a stream alive included. By default 90 s.
    pub chunk_ms: u64,
    /// From a call's start to the end of its answer, all tries and waits included. By default 600 s.
    pub total_ms: u64,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect_ms: 5_000,
            first_byte_ms: 300_000,
            chunk_ms: 90_000,
            total_ms: 600_000,
        }
    }
}

/// When `ms` milliseconds from `now` are over, a week at most.
pub(crate) fn deadline(now: Instant, ms: u64) -> Instant {
    now + Duration::from_millis(ms.min(TIMEOUT_MS_MAX))
}
